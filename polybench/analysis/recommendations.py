"""Finds settings that were measured to be faster than a configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from polybench.analysis.related_studies import Axis, Variation, find_variations
from polybench.results.comparisons import compare_results, throughput_ratio
from polybench.results.interference import inconclusive_reason
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import Ratio, is_significant


class Recommendation(NamedTuple):
    """A change that saves `seconds_saved` per step of a configuration."""

    result: Result
    change: Literal["variant"] | Axis
    value: str
    """The faster configuration, or the better value of the setting."""
    seconds_saved: float
    seconds_after: float
    """Remaining time of a step with the same number of items."""
    study: str
    """ID of the study that measured it."""


def find_recommendations(
    study: StudyDocument, result: Result, studies: Sequence[StudyDocument]
) -> list[Recommendation]:
    """Return significant improvements, the largest first; none for a single process.

    They are the faster variants in this study. For threads, batch size and malloc policy, they are the best
    values in other studies with otherwise equal settings.

    Args:
        study: the study of the configuration.
        result: a ranked result.
        studies: saved studies, the newest first.
    """
    found = [*_variants(study, result), *_settings(study, result, studies)]
    return sorted(found, key=lambda one: -one.seconds_saved)


def _variants(study: StudyDocument, result: Result) -> Iterator[Recommendation]:
    for other in study.results:
        same = (other.engine, other.device) == (result.engine, result.device)
        same = same and other.workload.precision == result.workload.precision
        if not (other.is_ranked and same and other.engine_name != result.engine_name):
            continue
        found = compare_results(result, other)
        if found is None or found.inconclusive_reason is not None:
            continue
        if _is_faster(Ratio(found.speedup, found.ci95, found.scope)):
            before, after = result.median_step_seconds, other.median_step_seconds
            yield Recommendation(result, "variant", other.configuration, before - after, after, study.id)


def _settings(study: StudyDocument, result: Result, studies: Iterable[StudyDocument]) -> Iterator[Recommendation]:
    all_studies = list(studies)
    for axis in get_args(Axis):
        variations = [one for (one,) in find_variations(study, [result.configuration], axis, all_studies)]
        better = [found for one in variations if (found := _recommend(result, axis, one)) is not None]
        if better:
            yield max(better, key=lambda one: one.seconds_saved)


def _recommend(result: Result, axis: Axis, variation: Variation) -> Recommendation | None:
    ratio = throughput_ratio(result, variation.result)
    if not _is_faster(ratio) or inconclusive_reason(result, variation.result) is not None:
        return None
    before = result.median_step_seconds
    after = before / ratio.value
    return Recommendation(result, axis, str(variation.value), before - after, after, variation.study.id)


def _is_faster(ratio: Ratio) -> bool:
    return is_significant(ratio) is True and ratio.value > 1
