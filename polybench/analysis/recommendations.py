"""Finds settings that were measured to be faster than a configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from polybench.analysis.related_studies import Axis, Variation, find_layers, find_variations
from polybench.planning.suggested_commands import (
    command_line,
    engine_of,
    for_comparison,
    for_layers,
    for_parity,
    for_sweep,
    has_layers,
    other_variants,
)
from polybench.results.comparisons import compare_results, compare_throughput
from polybench.results.interference import NOTABLE_FAULT_FRACTION, page_fault_fraction
from polybench.schema.analyses import ExplainedComparison, Statement
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Study
from polybench.schema.result import Comparison, Result
from polybench.schema.study import StudyDocument


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
    values in other studies, the newest first, with otherwise equal settings.
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
        if found is not None and _is_faster(found):
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
    found = compare_throughput(result, variation.result)
    if not _is_faster(found):
        return None
    before = result.median_step_seconds
    after = before / found.speedup
    return Recommendation(result, axis, str(variation.value), before - after, after, variation.study.id)


def _is_faster(found: Comparison) -> bool:
    return found.is_significant is True and found.speedup > 1


def suggested_measurements(
    document: StudyDocument,
    study: Study,
    pairs: Sequence[ExplainedComparison],
    slower: Sequence[Result],
    studies: Sequence[StudyDocument],
    layers: Sequence[LayersDocument],
) -> Iterator[Statement]:
    """Yield a statement for each missing measurement that would help; saved documents come the newest first."""
    compared = {configuration for pair in pairs for configuration in (pair.configuration, pair.baseline)}
    ranked = [result for result in document.results if result.configuration in compared]
    yield from _suggest_layers(document, study, pairs, layers)
    if any(pair.breakdown("batch size") is None for pair in pairs):
        yield _missing(
            "the fixed overhead of a step",
            "overhead",
            command_line("overhead", for_sweep(study, map(engine_of, ranked), "batch_size")),
        )
    yield from _suggest_threads(document, study, slower, studies)
    yield from _suggest_batch_sizes(document, study, slower, studies)
    yield from _suggest_variants(document, study, slower)
    yield from _suggest_malloc(document, study, slower, studies)
    if document.settings.input == "preload":
        with_pipeline = for_comparison(study, map(engine_of, ranked), input="pipeline")
        yield _missing(
            "waiting for data, because all data was preloaded",
            "data_wait_time",
            command_line("compare", with_pipeline),
        )


def excluded_configurations(document: StudyDocument, study: Study) -> Iterator[Statement]:
    """Yield the reason and a fix for each configuration that cannot be compared."""
    for result in document.results:
        if result.is_ranked:
            continue
        engine = engine_of(result)
        if result.parity.status == "fail":
            reason, command = "failed the parity check", command_line("parity", for_parity(study, engine))
        else:
            reason = f"{result.status}{': ' + ' '.join(result.reason.split()) if result.reason else ''}"
            command = command_line("compare", for_comparison(study, [engine]))
        hint = f" ({' '.join(result.hint.split())})" if result.hint else ""
        yield Statement(text=f"{result.configuration}: {reason}{hint}", evidence="status", command=command)


def _missing(measurement: str, evidence: str, command: str) -> Statement:
    return Statement(text=f"Not measured: {measurement}.", evidence=evidence, command=command)


def _suggest_layers(
    document: StudyDocument, study: Study, pairs: Sequence[ExplainedComparison], layers: Sequence[LayersDocument]
) -> Iterator[Statement]:
    """Suggest layer times of both configurations of a pair, since only times of one study are comparable."""
    without = [(pair.configuration, pair.baseline) for pair in pairs if pair.breakdown("layers") is None]
    possible = [both for both in without if all(has_layers(document.result(name)) for name in both)]
    names = {name for both in possible for name in both}
    results = [result for result in document.results if result.configuration in names]
    layers_study = for_layers(study, results) if results else None
    if layers_study is None:
        return
    timed = [result for result in results if find_layers(document, layers, [result.configuration])]
    missing = [result for result in results if result not in timed]
    measurement = f"the layers of {_names(missing or results)}"
    if timed:
        measurement += f" together with those of {_names(timed)}" if missing else " in one study"
    yield _missing(measurement, "layers", command_line("layers", layers_study))


def _suggest_threads(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument]
) -> Iterator[Statement]:
    cores = document.host.cores
    values = sorted({2**power for power in range(cores.bit_length()) if 2**power <= cores} | {cores})
    unknown = [result for result in slower if not find_variations(document, [result.configuration], "threads", studies)]
    if unknown and len(values) > 1:
        sweep = for_sweep(study, map(engine_of, unknown), "threads")
        yield _missing(
            f"other numbers of threads for {_names(unknown)}",
            "sweep",
            command_line("sweep", sweep, "--threads", ",".join(map(str, values))),
        )


def _suggest_batch_sizes(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument]
) -> Iterator[Statement]:
    batch_size = document.settings.batch_size
    values = sorted({max(1, batch_size // 4), batch_size, 4 * batch_size})
    unknown = [
        result for result in slower if not find_variations(document, [result.configuration], "batch_size", studies)
    ]
    if unknown:
        sweep = for_sweep(study, map(engine_of, unknown), "batch_size")
        yield _missing(
            f"other batch sizes for {_names(unknown)}",
            "sweep",
            command_line("sweep", sweep, "--batch-size", ",".join(map(str, values))),
        )


def _suggest_variants(document: StudyDocument, study: Study, slower: Sequence[Result]) -> Iterator[Statement]:
    measured = {engine_of(result) for result in document.results}
    for result in {engine_of(result): result for result in slower}.values():
        others = [name for name in other_variants(result) if name not in measured]
        if others:
            comparison = for_comparison(study, [engine_of(result), *others])
            yield _missing(
                f"other variants of {result.configuration}: {', '.join(others)}",
                "step_time",
                command_line("compare", comparison),
            )


def _suggest_malloc(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument]
) -> Iterator[Statement]:
    """Suggest to retain freed memory if page faults are expensive and the policy is `system`."""
    expensive = [
        result
        for result in slower
        if (page_fault_fraction(result.interference) or 0.0) > NOTABLE_FAULT_FRACTION
        and not find_variations(document, [result.configuration], "malloc", studies)
    ]
    if expensive and document.settings.malloc == "system":
        retaining = for_comparison(study, map(engine_of, expensive), malloc="retain")
        yield _missing(
            f"{_names(expensive)} with --malloc retain",
            "page_faults",
            command_line("compare", retaining),
        )


def _names(results: Sequence[Result]) -> str:
    return ", ".join(result.configuration for result in results)
