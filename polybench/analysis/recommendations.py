"""Finds settings that were measured to be faster, and measurements that would explain more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from polybench.analysis.related_studies import Axis, find_layers, find_variations
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
from polybench.results.comparisons import compare_results, compare_throughput, correct_for_number
from polybench.results.interference import NOTABLE_FAULT_FRACTION, page_fault_fraction
from polybench.schema import units
from polybench.schema.analyses import ExplainedComparison, Statement, StudySpread
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Study
from polybench.schema.result import Comparison, Result
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import difference_of_shifts

_WITH = {"threads": "with {} threads", "malloc": "with --malloc {}", "batch_size": "with batch size {}"}


def find_recommendations(
    study: StudyDocument, result: Result, studies: Sequence[StudyDocument], spread: StudySpread
) -> Iterator[Statement]:
    """Yield significant improvements of a ranked result; none for a single process.

    They are the faster variants in this study. For threads, batch size and malloc policy, they are the best
    values in other studies, the newest first, with otherwise equal settings; `spread` is that between studies.
    """
    if not result.is_for_production:
        return
    before = result.step_seconds
    variants = [
        other
        for other in study.results
        if (other.engine, other.device) == (result.engine, result.device)
        and other.workload.precision == result.workload.precision
        and other.is_for_production
        and other.engine_name != result.engine_name
    ]
    compared = correct_for_number([compare_results(result, other) for other in variants])
    for other, found in zip(variants, compared, strict=True):
        if found is not None and _is_faster(found, study.settings.tolerance):
            change = f"{result.configuration} as {other.configuration}"
            yield _recommendation(change, "per step", before, other.step_seconds, study.id)
    variations = [
        (axis, one)
        for axis in get_args(Axis)
        for (one,) in find_variations(study, [result.configuration], axis, studies)
    ]
    shifts = difference_of_shifts(spread, spread)
    compared = correct_for_number([compare_throughput(result, one.result, shifts) for _, one in variations])
    for axis in get_args(Axis):
        faster = [
            (one, found.speedup)
            for (other, one), found in zip(variations, compared, strict=True)
            if other == axis and found is not None and _is_faster(found, study.settings.tolerance)
        ]
        if faster:
            best, speedup = max(faster, key=lambda one: one[1])
            change = f"{result.configuration} {_WITH[axis].format(best.value)}"
            amount = f"for {result.workload.batch_size} images" if axis == "batch_size" else "per step"
            yield _recommendation(
                change, amount, before, before / speedup, best.study.id, ", measured in another study"
            )


def _is_faster(found: Comparison, tolerance: float) -> bool:
    return found.is_significant is True and found.speedup > 1 + tolerance


def _recommendation(change: str, amount: str, before: float, after: float, study: str, source: str = "") -> Statement:
    saved, now, then = map(units.format_seconds, (before - after, after, before))
    return Statement(
        text=f"{change}: {saved} less {amount}, {now} instead of {then}{source}.",
        evidence=f"step_time of study {study}",
        seconds=before - after,
    )


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
    if any(pair.inconclusive_reason for pair in pairs):
        again = for_comparison(study, map(engine_of, ranked), processes=max(5, study.processes), wait_idle=60.0)
        yield _missing("a difference on an idle machine", "speedup", command_line("compare", again))
    yield from _suggest_layers(document, study, pairs, layers)
    if any(pair.breakdown("batch size") is None for pair in pairs):
        yield _missing(
            "how much of a step does not depend on the batch size",
            "overhead",
            command_line("overhead", for_sweep(study, map(engine_of, ranked), "batch_size")),
        )
    yield from _suggest_sweep(document, study, slower, studies, "threads")
    yield from _suggest_sweep(document, study, slower, studies, "batch_size")
    yield from _suggest_variants(document, study, slower)
    yield from _suggest_malloc(document, study, slower, studies)
    if document.settings.input == "preload":
        with_pipeline = for_comparison(study, map(engine_of, ranked), input="pipeline")
        yield _missing(
            "how long a step waits for data, since all of it was preloaded",
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
            status = "(busy)" if result.busy else result.status
            reason = f"{status}{': ' + ' '.join(result.reason.split()) if result.reason else ''}"
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
    measurement = f"in which layers the difference arises: those of {_names(missing or results)}"
    if timed:
        measurement += f" together with those of {_names(timed)}" if missing else " in one study"
    yield _missing(measurement, "layers", command_line("layers", layers_study))


def _suggest_sweep(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument], axis: Axis
) -> Iterator[Statement]:
    """Suggest other values of an axis for the results whose other values are unknown."""
    if axis == "threads":
        name, cores = "numbers of threads", document.host.cores
        values = {2**power for power in range(cores.bit_length()) if 2**power <= cores} | {cores}
    else:
        name, batch_size = "batch sizes", document.settings.batch_size
        values = {max(1, batch_size // 4), batch_size, 4 * batch_size}
    unknown = [result for result in slower if not find_variations(document, [result.configuration], axis, studies)]
    if unknown and len(values) > 1:
        yield _missing(
            f"whether other {name} are faster: {_names(unknown)}",
            "sweep",
            command_line(
                "sweep",
                for_sweep(study, map(engine_of, unknown), axis),
                f"--{axis.replace('_', '-')}",
                ",".join(map(str, sorted(values))),
            ),
        )


def _suggest_variants(document: StudyDocument, study: Study, slower: Sequence[Result]) -> Iterator[Statement]:
    measured = {engine_of(result) for result in document.results}
    for result in {engine_of(result): result for result in slower}.values():
        others = [name for name in other_variants(result) if name not in measured]
        if others:
            comparison = for_comparison(study, [engine_of(result), *others])
            yield _missing(
                f"whether a variant of {result.configuration} is faster: {', '.join(others)}",
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
        yield _missing(f"{_names(expensive)} with --malloc retain", "page_faults", command_line("compare", retaining))


def _names(results: Sequence[Result]) -> str:
    return ", ".join(result.configuration for result in results)
