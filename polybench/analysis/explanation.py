"""Explains the differences within a study from all saved documents that are related to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from polybench.analysis.breakdown import batch_size_breakdown, layer_breakdown, startup_breakdown, step_time_difference
from polybench.analysis.explanation_summary import summarize
from polybench.analysis.explanation_text import pair_statements
from polybench.analysis.recommendations import excluded_configurations, find_recommendations, suggested_measurements
from polybench.analysis.related_studies import find_layers, find_variations
from polybench.analysis.step_parts import find_shared_layers, step_parts
from polybench.errors import BadInput, lookup_or_suggest
from polybench.planning.suggested_commands import measured_study
from polybench.results.comparisons import compare_results, correct_for_number
from polybench.results.repetitions import Repetitions
from polybench.results.summaries import StudySummary
from polybench.schema import units
from polybench.schema.analyses import Breakdown, ExplainedComparison, ExplanationDocument, Statement
from polybench.schema.measurements import LayersDocument
from polybench.schema.names import namer
from polybench.schema.result import SINGLE_PROCESS, Comparison, Result
from polybench.schema.study import StudyDocument

_MAX_CONFIGURATIONS = 200
"""Each is compared with the others of its engine."""
_MIN_POINTS = 3
"""Batch sizes that a linear fit requires; two always lie on a line, so only a third can contradict it."""


class SavedDocuments(NamedTuple):
    """Other saved documents, the newest first."""

    layers: Sequence[LayersDocument] = ()
    studies: Sequence[StudyDocument] = ()
    summaries: Sequence[StudySummary] = ()


def explain(document: StudyDocument, saved: SavedDocuments, baseline: str | None = None) -> ExplanationDocument:
    """Break down the difference between each configuration and the baseline, and add recommendations.

    Raises:
        BadInput: fewer than two configurations are ranked or more than 200, or the baseline is not ranked.
    """
    ranked = [result for result in document.results if result.is_ranked]
    if len(ranked) > _MAX_CONFIGURATIONS:
        raise BadInput(
            f"study {document.id} has {len(ranked):,} comparable configurations; an explanation has at most"
            f" {_MAX_CONFIGURATIONS}"
        )
    baseline_result = _baseline(document, ranked, baseline)
    study = measured_study(document)
    others = [other for other in ranked if other is not baseline_result]
    found = correct_for_number([compare_results(baseline_result, other) for other in others])
    pairs = [
        _compare(document, baseline_result, other, comparison, saved)
        for other, comparison in zip(others, found, strict=True)
    ]
    slower = {pair.configuration if pair.difference_seconds > 0 else pair.baseline: None for pair in pairs}
    slower_results = [document.result(configuration) for configuration in slower]
    repetitions = Repetitions(saved.summaries, {document.id: document})
    spreads = {result.device: repetitions.spread(document.id, device=result.device) for result in slower_results}
    name = namer(document)
    names = {result.configuration: name(result) for result in ranked}
    layers = find_shared_layers(document, list(names), baseline_result.configuration, saved.layers)
    recommendations = [
        one
        for result in slower_results
        for one in find_recommendations(document, result, saved.studies, spreads[result.device])
    ]
    return ExplanationDocument(
        study=document.id,
        created=document.created,
        polybench=document.polybench,
        settings=document.settings,
        host=document.host,
        names=names,
        layers=layers.document.id if layers else None,
        parts=step_parts(ranked, baseline_result.configuration, layers),
        summary=[_with_input_kind(one, document) for one in summarize(document, pairs, names, layers)],
        comparisons=sorted(pairs, key=lambda pair: pair.inconclusive_reason is None),
        recommendations=[
            _with_input_kind(one, document) for one in sorted(recommendations, key=lambda one: -(one.seconds or 0.0))
        ],
        suggested_measurements=list(
            suggested_measurements(document, study, pairs, slower_results, saved.studies, saved.layers)
        ),
        spreads=spreads,
        excluded=list(excluded_configurations(document, study)),
    )


def _baseline(document: StudyDocument, ranked: Sequence[Result], name: str | None) -> Result:
    by_name = {result.configuration: result for result in ranked}
    if name is not None:
        all_results = {result.configuration: result for result in document.results}
        result = lookup_or_suggest(name, all_results, "configuration")
        if name not in by_name:
            raise BadInput(f"{_unranked_reason(result)}; --baseline must be one of {', '.join(by_name)}")
    if len(ranked) < 2:
        others = "".join(f"; {_unranked_reason(result)}" for result in document.results if not result.is_ranked)
        count = f"only one measured configuration, {ranked[0].configuration}" if ranked else "no measured configuration"
        raise BadInput(
            f"study {document.id} has {count}, but an explanation requires two{others}; measure them together:"
            " polybench compare --engines torch,tf"
        )
    return by_name.get(name or document.settings.baseline or "", ranked[0])


def _unranked_reason(result: Result) -> str:
    reason = "failed the parity check" if result.parity.status == "fail" else result.reason or ""
    hint = f" ({result.hint})" if result.hint else ""
    return " ".join(f"{result.configuration}: {result.status}: {reason}{hint}".split()).removesuffix(":")


def _compare(
    document: StudyDocument, baseline: Result, other: Result, found: Comparison | None, saved: SavedDocuments
) -> ExplainedComparison:
    seconds, interval = step_time_difference(baseline, other)
    breakdowns: Sequence[Breakdown | None] = ()
    if explainable := found is not None and not found.is_inconclusive:
        layers = find_layers(document, saved.layers, [baseline.configuration, other.configuration])
        breakdowns = (
            None if layers is None else layer_breakdown(baseline, other, layers),
            _batch_size_breakdown(document, baseline, other, saved),
            startup_breakdown(baseline, other),
        )
    pair = ExplainedComparison(
        configuration=other.configuration,
        baseline=baseline.configuration,
        seconds=other.step_seconds,
        baseline_seconds=baseline.step_seconds,
        difference_seconds=seconds,
        ci95=interval,
        speedup=found.speedup if found else baseline.step_seconds / other.step_seconds,
        speedup_ci95=found.ci95 if found else None,
        inconclusive_reason=_inconclusive_reason(found),
        breakdowns=[one for one in breakdowns if one is not None],
    )
    pair.statements = [_with_input_kind(one, document) for one in pair_statements(pair, baseline, other, explainable)]
    return pair


def _with_input_kind(statement: Statement, document: StudyDocument) -> Statement:
    """Replace images by sequences if the study trains on sequences."""
    text = units.with_input_kind(statement.text, document.settings.input_kind)
    return msgspec.structs.replace(statement, text=text)


def _inconclusive_reason(found: Comparison | None) -> str | None:
    if found is None:
        return "no round was measured for both"
    if found.is_inconclusive:
        return found.inconclusive_reason or SINGLE_PROCESS
    if found.is_significant:
        return None
    low, high = found.ci95 or (1.0, 1.0)
    return "the interval of the speed-up includes 1" if low <= 1 <= high else "not significant among these comparisons"


def _batch_size_breakdown(
    document: StudyDocument, baseline: Result, other: Result, saved: SavedDocuments
) -> Breakdown | None:
    names = [baseline.configuration, other.configuration]
    variations = find_variations(document, names, "batch_size", saved.studies)
    studies = {int(one.value): one.study for one, _ in variations}
    studies |= {document.settings.batch_size: document}
    return batch_size_breakdown(baseline, other, studies) if len(studies) >= _MIN_POINTS else None
