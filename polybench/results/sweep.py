"""Computes the documents of sweeps and overheads from their logs, and from their studies. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.log import AnyEvent, Header, PointStarted, SettingsChosen, StudyEnded, header_of, split_points
from polybench.results.comparisons import compare_costs, compare_results, compare_throughput, device_count
from polybench.results.document import damage_named, printed_results, report_of, within_bounds
from polybench.results.interference import inconclusive_reason, unaffected_step_times
from polybench.results.warnings import shared_warnings
from polybench.schema import units
from polybench.schema.measurements import (
    ConfigurationOverhead,
    Curve,
    OverheadDocument,
    OverheadPoint,
    PointReference,
    PointResult,
    SweepDocument,
    SweepPoint,
    ThreadPoolGrid,
    ThreadPoolSizes,
)
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.resources import Cost
from polybench.schema.result import SIGNIFICANCE_LEVEL, SINGLE_PROCESS, EndedResult, Interval, Result, status_fields
from polybench.schema.study import StudyDocument
from polybench.stats.overhead_fit import fit_overhead
from polybench.stats.statistics import p_value_of_interval, process_means

KNEE_FRACTION = 0.9
"""Fraction of the best throughput that defines the knee: the smallest value that reaches it."""

MeasuredPoint = tuple[dict[str, int], StudyDocument]
"""Parameters of a point and its finished study."""


def points_of(
    events: Sequence[AnyEvent], *, prices: Mapping[str, float] | None = None, salvage: bool = False
) -> list[MeasuredPoint]:
    """Return the report of each point of a sweep's log whose settings are known; raises DamagedLog as `report_of`."""
    parameters = {one.point: one.parameters for one in events if isinstance(one, PointStarted)}
    return [
        (parameters[number], report_of(own, prices=prices, salvage=salvage))
        for number, own in split_points(events, salvage=salvage).items()
        if _has_settings(own)
    ]


def _has_settings(events: Sequence[AnyEvent]) -> bool:
    return any(isinstance(event, SettingsChosen) for event in events)


def derive_sweep(
    events: Sequence[AnyEvent], *, prices: Mapping[str, float] | None = None, salvage: bool = False
) -> SweepDocument | OverheadDocument:
    """Compute the document of a sweep or overhead from its log; arguments and errors are those of `derive`."""
    return document_of(header_of(events), points_of(events, prices=prices, salvage=salvage))


def document_of(header: Header, points: Sequence[MeasuredPoint]) -> SweepDocument | OverheadDocument:
    """Build the document of a sweep with this header from the reports of its points.

    Raises:
        BadInput: it has no points yet.
        DamagedLog: they are not those of the sweep, or a computed value is out of its bounds.
    """
    if not points:
        raise BadInput(f"{header.id} ended before anything was measured")
    with damage_named(header.id):
        return within_bounds(_build(header, points))


def _build(header: Header, points: Sequence[MeasuredPoint]) -> SweepDocument | OverheadDocument:
    metadata = StudyFileMetadata(header.title, header.published, tags=tuple(header.tags))
    own = {"id": header.id, "created": header.created}
    if header.command == "overhead":
        by_size = {parameters["batch_size"]: document for parameters, document in points}
        overhead = build_overhead_document(by_size, header.argv, header.axes["batch_size"], metadata)
        return msgspec.structs.replace(overhead, **own)
    sweep = build_sweep_document(header.axes, points, header.argv, header.usable_threads or 1, metadata)
    return msgspec.structs.replace(sweep, **own)


def sweep_end(
    events: Sequence[AnyEvent],
    outcome: Literal["finished", "interrupted", "discarded"],
    document: SweepDocument | OverheadDocument | None,
) -> StudyEnded:
    """Return the end of a sweep: the ends of its points, and whether its fastest one is uncertain.

    A point without an end, or with the one of an earlier interruption, gets the outcome of the sweep. The document is
    None if nothing was measured.
    """
    header, ends = header_of(events), []
    for number, own in split_points(events).items():
        end = own[-1]
        if not isinstance(end, StudyEnded):
            printed = printed_results(report_of(own)) if _has_settings(own) else {}
            end = StudyEnded(point=number, outcome=outcome, polybench=header.polybench, **printed)
        ends.append(end if end.outcome == "finished" else msgspec.structs.replace(end, outcome=outcome))
    curves = document.curves if isinstance(document, SweepDocument) else []
    is_inconclusive = isinstance(document, SweepDocument) and document.inconclusive_reason is not None
    return StudyEnded(
        outcome=outcome,
        polybench=header.polybench,
        results={curve.configuration: EndedResult(is_inconclusive=is_inconclusive) for curve in curves},
        points=ends,
    )


class _Reference(NamedTuple):
    """The result to which times and costs of a sweep are relative."""

    parameters: dict[str, int]
    result: Result


def build_sweep_document(
    axes: Mapping[str, Sequence[int]],
    points: Sequence[MeasuredPoint],
    argv: Sequence[str],
    usable_threads: int,
    study_file: StudyFileMetadata = NO_METADATA,
) -> SweepDocument:
    """Build the document of at least one point, in the order of the axes.

    More than `usable_threads` threads oversubscribe the machine.
    """
    documents = [document for _, document in points]
    first: dict[str, Result] = {}
    for document in documents:
        for result in document.results:
            if result.is_ranked:
                first.setdefault(result.configuration, result)
    reference = _reference(points)
    candidates = [one for one in _measured(points) if one.result.is_for_production]
    sweep_points = [
        SweepPoint(
            parameters,
            document.id,
            oversubscribed=document.settings.threads > usable_threads,
            configurations=[
                _point_result(result, first.get(result.configuration), "threads" in axes, document, reference)
                for result in document.results
            ],
            workload=document.results[0].workload if document.results else None,
        )
        for parameters, document in points
    ]
    return SweepDocument(
        created=min(document.created for document in documents),
        polybench=documents[0].polybench,
        argv=list(argv),
        model=",".join(dict.fromkeys(document.settings.model for document in documents)),
        pass_=documents[0].settings.pass_,
        input_kind=documents[0].settings.input_kind,
        host=documents[0].host,
        axes={axis: list(values) for axis, values in axes.items()},
        points=sweep_points,
        curves=_curves(points),
        inconclusive_reason=_inconclusive_reason(candidates),
        fastest=_references(_with_ties(candidates, _throughput, _compare_throughput)),
        cheapest=_references(_with_ties([one for one in candidates if one.result.cost], _cheapness, _compare_cost)),
        reference=PointReference(reference.result.configuration, reference.parameters) if reference else None,
        thread_pools=thread_pool_grids(points),
        warnings=sweep_warnings(points),
        title=study_file.title,
        tags=[*study_file.tags],
        published=study_file.published,
    )


def sweep_warnings(points: Sequence[tuple[Mapping[str, int], StudyDocument]]) -> list[str]:
    """Return the warnings of a sweep's studies, each once, with its points."""
    return shared_warnings([(units.format_point(parameters), document) for parameters, document in points], "point")


def _reference(points: Sequence[MeasuredPoint]) -> _Reference | None:
    """Return the baseline's result at the first point that has one.

    If the requested baseline failed at a point, that point has another one. The baseline of most points
    is used.
    """
    baselines = Counter(filter(None, (document.settings.baseline for _, document in points)))
    baseline = next((configuration for configuration, _ in baselines.most_common(1)), None)
    for parameters, document in points:
        for result in document.results:
            if result.configuration == baseline and result.is_ranked and result.epoch_seconds:
                return _Reference(parameters, result)
    return None


def _point_result(
    result: Result, first: Result | None, by_threads: bool, document: StudyDocument, reference: _Reference | None
) -> PointResult:
    """Compare a result with its configuration's first point, and its epoch with the reference."""
    if not result.is_ranked or first is None:
        return PointResult(result.configuration, result.status, result.reason or result.parity.reason, busy=result.busy)
    found = compare_throughput(first, result)
    threads = result.workload.threads / first.workload.threads
    price = document.settings.prices.get(result.device) if result.epoch_seconds is not None else None
    dollars = result.cost.dollars_per_epoch if result.cost else None
    reference_cost = reference.result.cost if reference else None
    relative_cost = None
    if reference and dollars is not None:
        relative_cost = compare_costs(
            reference.result, result, reference_cost.dollars_per_epoch if reference_cost else None, dollars
        )
    return PointResult(
        result.configuration,
        result.status,
        caveat=result.caveat,
        step_seconds=result.step_seconds,
        items_per_second=result.items_per_second,
        speedup=found.speedup,
        ci95=found.ci95 if result is not first else None,
        inconclusive_reason=found.inconclusive_reason if result is not first else None,
        efficiency=found.speedup / threads if by_threads else None,
        epoch_seconds=result.epoch_seconds,
        relative_time=_ratio(result.epoch_seconds, reference.result.epoch_seconds if reference else None),
        dollars_per_hour=None if price is None else price * device_count(result),
        dollars_per_epoch=dollars,
        relative_cost=relative_cost.relative if relative_cost else None,
        relative_cost_ci95=_interval_of(relative_cost) if relative_cost else None,
        relative_inconclusive_reason=(
            compare_costs(reference.result, result, 1.0, 1.0).inconclusive_reason if reference else None
        ),
    )


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


class _Measured(NamedTuple):
    """A ranked result at a point."""

    parameters: dict[str, int]
    result: Result
    study: StudyDocument


def _measured(points: Sequence[MeasuredPoint]) -> list[_Measured]:
    return [
        _Measured(parameters, result, document)
        for parameters, document in points
        for result in document.results
        if result.is_ranked
    ]


def _throughput(one: _Measured) -> float:
    return one.result.items_per_second or 0.0


def _cheapness(one: _Measured) -> float:
    return -one.result.cost.dollars_per_epoch if one.result.cost else -math.inf


def _compare_throughput(best: _Measured, other: _Measured) -> Interval | None:
    if best.study is other.study:
        found = compare_results(best.result, other.result)
    else:
        found = compare_throughput(best.result, other.result)
    return found.ci95 if found and found.scope == "processes" else None


def _compare_cost(best: _Measured, other: _Measured) -> Interval | None:
    dollars = [one.result.cost.dollars_per_epoch for one in (best, other) if one.result.cost]
    return _interval_of(compare_costs(best.result, other.result, dollars[0], dollars[1]))


def _interval_of(cost: Cost) -> Interval | None:
    """Return the interval over processes; points were measured in turns, so those with the same number form a pair."""
    return cost.ci95 if cost.inconclusive_reason != SINGLE_PROCESS else None


def _with_ties(
    measured: Sequence[_Measured],
    value: Callable[[_Measured], float],
    compare: Callable[[_Measured, _Measured], Interval | None],
) -> list[_Measured]:
    """Return the best point, then all that do not differ from it significantly; none for single processes.

    The best of equal points is the one that chance favours, so its distance from the worst is the range of all of
    them: the p-values are corrected for all pairs of points (Bonferroni).
    """
    if not measured:
        return []
    best = max(measured, key=value)
    pairs = len(measured) * (len(measured) - 1) // 2
    ties = [best]
    for one in measured:
        interval = compare(best, one) if one is not best else None
        freedom = min(_processes(best.result), _processes(one.result)) - 1
        if interval and pairs * p_value_of_interval(interval, freedom) >= SIGNIFICANCE_LEVEL:
            ties.append(one)
    return ties


def _processes(result: Result) -> int:
    return sum(map(any, unaffected_step_times(result)))


def _inconclusive_reason(measured: Sequence[_Measured]) -> str | None:
    """Return why the fastest point may be another one: interference, or single processes."""
    if any(len(one.result.nested_step_times) < 2 for one in measured):
        return SINGLE_PROCESS
    return next(filter(None, (inconclusive_reason(one.result) for one in measured)), None)


def _references(measured: Sequence[_Measured]) -> list[PointReference]:
    return [PointReference(one.result.configuration, one.parameters) for one in measured]


def _curves(points: Sequence[MeasuredPoint]) -> list[Curve]:
    by_configuration: dict[str, list[_Measured]] = {}
    for one in _measured(points):
        by_configuration.setdefault(one.result.configuration, []).append(one)
    return [_curve(configuration, measured) for configuration, measured in by_configuration.items()]


def _curve(configuration: str, measured: Sequence[_Measured]) -> Curve:
    best, *ties = _with_ties(measured, _throughput, _compare_throughput)
    best_throughput = max(map(_throughput, measured))
    has_intervals = len(measured) == 1 or all(len(one.result.nested_step_times) > 1 for one in measured)
    as_good = [one.parameters for one in ties] if has_intervals else None
    knee = None
    if len(best.parameters) == 1:
        threshold = KNEE_FRACTION * best_throughput
        knee = min(value for one in measured if _throughput(one) >= threshold for value in one.parameters.values())
    return Curve(configuration, best.parameters, best_throughput, as_good, knee)


def thread_pool_grids(points: Sequence[MeasuredPoint]) -> list[ThreadPoolGrid]:
    """Return a grid for each engine, device and point of the other axes, if BLAS had several pool sizes.

    The engine's build information has the sizes. If two configurations have the same sizes, such as a plain
    engine with one thread and one of its variants, the first one counts.
    """
    grids: dict[tuple[str, tuple[tuple[str, int], ...]], dict[tuple[int, int], tuple[ThreadPoolSizes, _Measured]]] = {}
    for parameters, document in points:
        others = tuple((axis, value) for axis, value in parameters.items() if axis != "threads")
        for result in document.results:
            for one in _pool_sizes(result):
                key = _without_pool_variants(result), others
                measured = one, _Measured(parameters, result, document)
                grids.setdefault(key, {}).setdefault((one.julia, one.blas), measured)
    return [
        _thread_pool_grid(configuration, dict(others), list(found.values()))
        for (configuration, others), found in grids.items()
        if len({blas for _, blas in found}) > 1
    ]


def _thread_pool_grid(
    configuration: str, others: dict[str, int], measured: Sequence[tuple[ThreadPoolSizes, _Measured]]
) -> ThreadPoolGrid:
    ties = {id(one) for one in _with_ties([one for _, one in measured], _throughput, _compare_throughput)}
    best, *as_good = sorted((sizes for sizes, one in measured if id(one) in ties), key=lambda one: one.step_seconds)
    return ThreadPoolGrid(configuration, others, [sizes for sizes, _ in measured], best, as_good)


def _pool_sizes(result: Result) -> Iterator[ThreadPoolSizes]:
    build = result.versions.get("build", {})
    step = result.step_time
    if result.is_ranked and step is not None and {"julia_threads", "blas_threads"} <= set(build):
        julia, blas = int(build["julia_threads"]), int(build["blas_threads"])
        yield ThreadPoolSizes(julia, blas, step.mean, step.ci95)


def _without_pool_variants(result: Result) -> str:
    """Return the configuration's name without the variants that only set pool sizes."""
    engine = ENGINES.get(result.engine)
    known = engine.variants if engine else {}
    variants = [
        name
        for name in (result.variant or "").split("+")
        if name and not (name in known and known[name].changes_thread_pools)
    ]
    return f"{'+'.join([result.engine, *variants])}/{result.device}"


def build_overhead_document(
    documents: Mapping[int, StudyDocument],
    argv: Sequence[str],
    batch_sizes: Sequence[int] = (),
    metadata: StudyFileMetadata = NO_METADATA,
) -> OverheadDocument:
    """Fit each configuration that was measured at two or more batch sizes.

    `documents` are finished studies by batch size; `batch_sizes` are the requested ones, by default the same.
    """
    first = next(iter(documents.values()))
    return OverheadDocument(
        created=min(document.created for document in documents.values()),
        polybench=first.polybench,
        argv=list(argv),
        model=first.settings.model,
        pass_=first.settings.pass_,
        input_kind=first.settings.input_kind,
        threads=first.settings.threads,
        host=first.host,
        batch_sizes=sorted(batch_sizes or documents),
        studies=[documents[size].id for size in sorted(documents)],
        configurations=[_configuration_overhead(result.configuration, documents) for result in first.results],
        warnings=sweep_warnings([({"batch_size": size}, document) for size, document in documents.items()]),
        title=metadata.title,
        tags=[*metadata.tags],
    )


def _configuration_overhead(configuration: str, documents: Mapping[int, StudyDocument]) -> ConfigurationOverhead:
    results = [document.result(configuration) for document in documents.values()]
    measured = {result.workload.batch_size: result for result in results if result.is_ranked}
    failing = (one for one in results if not one.is_ranked or one.status == "interrupted")
    reported = next(failing, results[0])
    process_times = [process_means(unaffected_step_times(result)) for result in measured.values()]
    processes = list(zip(*process_times, strict=False))  # keeps the processes that all results have
    fit = fit_overhead(list(measured), processes)._asdict() if len(measured) > 1 and processes else {}
    calls = [seconds for result in measured.values() if (seconds := result.python_call_overhead_seconds) is not None]
    row = ConfigurationOverhead(
        **status_fields(reported),
        **fit,
        python_call_overhead_seconds=median(calls) if fit and calls else None,
        points=[
            OverheadPoint(size, step.mean, step.ci95)
            for size, result in sorted(measured.items())
            if (step := result.step_time)
        ],
    )
    row.reason = row.reason or (None if reported.is_ranked else reported.parity.reason)
    return row
