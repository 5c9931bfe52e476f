"""Builds the sweep document from its studies: speed-up, efficiency, costs, knee, best point. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from polybench.engines import ENGINES
from polybench.results.comparisons import compare_throughput, device_count
from polybench.results.interference import unaffected_step_times
from polybench.results.warnings import sweep_warnings
from polybench.schema.documents import DOCUMENT_KINDS
from polybench.schema.measurements import (
    ConfigurationOverhead,
    Curve,
    OverheadDocument,
    OverheadIntervals,
    OverheadPoint,
    PointReference,
    PointResult,
    SweepDocument,
    SweepPoint,
    ThreadPoolGrid,
    ThreadPoolSizes,
)
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument
from polybench.stats.overhead_fit import fit_overhead
from polybench.stats.statistics import process_log_medians

KNEE_FRACTION = 0.9
"""Fraction of the best throughput that defines the knee: the smallest value that reaches it."""

MeasuredPoint = tuple[dict[str, int], StudyDocument]
"""Parameters of a point and its finished study."""


def build_sweep_document(
    axes: Mapping[str, Sequence[int]],
    points: Sequence[MeasuredPoint],
    argv: Sequence[str],
    usable_threads: int,
    study_file: StudyFileMetadata = NO_METADATA,
) -> SweepDocument:
    """Build the sweep document.

    Args:
        axes: the varied parameters with their values.
        points: measured points in the order of the axes; at least one.
        argv: the command line, stored in the document.
        usable_threads: of this machine, to mark oversubscribed points.
        study_file: title and published results from the study file.
    """
    first: dict[str, Result] = {}
    for _, document in points:
        for result in document.results:
            if result.is_ranked:
                first.setdefault(result.configuration, result)
    _, any_document = points[0]
    reference = _reference(points)
    sweep_points = [
        SweepPoint(
            parameters,
            document.id,
            oversubscribed=document.settings.threads > usable_threads,
            configurations=[
                _with_cost(
                    _point_result(result, first.get(result.configuration), "threads" in axes),
                    result,
                    document,
                    reference,
                )
                for result in document.results
            ],
            workload=document.results[0].workload if document.results else None,
        )
        for parameters, document in points
    ]
    models = dict.fromkeys(document.settings.model for _, document in points)
    return SweepDocument(
        id=DOCUMENT_KINDS["sweep"].id_prefix + min(document.id for _, document in points),
        created=min(document.created for _, document in points),
        polybench=any_document.polybench,
        argv=list(argv),
        model=",".join(models),
        input_kind=any_document.settings.input_kind,
        host=any_document.host,
        axes={axis: list(values) for axis, values in axes.items()},
        points=sweep_points,
        curves=_curves(sweep_points),
        reference=(PointReference(reference.result.configuration, reference.parameters) if reference else None),
        thread_pools=thread_pool_grids(points),
        warnings=sweep_warnings(points),
        title=study_file.title,
        published=study_file.published,
    )


def _point_result(result: Result, first: Result | None, by_threads: bool) -> PointResult:
    if not result.is_ranked or first is None:
        reason = result.reason or result.parity.reason
        return PointResult(result.configuration, result.status, reason)
    ratio = compare_throughput(first, result)
    threads = result.workload.threads / first.workload.threads
    return PointResult(
        result.configuration,
        result.status,
        step_seconds=result.step_time.median if result.step_time else None,
        items_per_second=result.items_per_second,
        speedup=ratio.speedup,
        ci95=ratio.ci95 if result is not first else None,
        efficiency=ratio.speedup / threads if by_threads else None,
    )


class _Reference(NamedTuple):
    parameters: dict[str, int]
    result: Result


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


def _with_cost(
    point_result: PointResult, result: Result, document: StudyDocument, reference: _Reference | None
) -> PointResult:
    """Add time and price of an epoch, relative to the sweep's reference."""
    if point_result.speedup is None or result.epoch_seconds is None:
        return point_result
    price = document.settings.prices.get(result.device)
    cost, reference_cost = result.cost, reference.result.cost if reference else None
    return msgspec.structs.replace(
        point_result,
        epoch_seconds=result.epoch_seconds,
        relative_time=_ratio(result.epoch_seconds, reference.result.epoch_seconds if reference else None),
        dollars_per_hour=None if price is None else price * device_count(result),
        dollars_per_epoch=cost.dollars_per_epoch if cost else None,
        relative_cost=_ratio(
            cost.dollars_per_epoch if cost else None,
            reference_cost.dollars_per_epoch if reference_cost else None,
        ),
    )


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


def _curves(points: Sequence[SweepPoint]) -> list[Curve]:
    by_configuration: dict[str, list[tuple[dict[str, int], float]]] = {}
    for point in points:
        for one in point.configurations:
            if one.items_per_second is not None:
                by_configuration.setdefault(one.configuration, []).append((point.parameters, one.items_per_second))
    return [_curve(configuration, measured) for configuration, measured in by_configuration.items()]


def _curve(configuration: str, measured: Sequence[tuple[dict[str, int], float]]) -> Curve:
    best, best_throughput = max(measured, key=lambda one: one[1])
    knee = None
    if len(best) == 1:
        threshold = KNEE_FRACTION * best_throughput
        knee = min(
            value for parameters, throughput in measured if throughput >= threshold for value in parameters.values()
        )
    return Curve(configuration, best, best_throughput, knee)


def build_overhead_document(
    documents: Mapping[int, StudyDocument], argv: Sequence[str], batch_sizes: Sequence[int] = ()
) -> OverheadDocument:
    """Fit each configuration that was measured at two or more batch sizes.

    Args:
        documents: finished studies by batch size; at least one.
        argv: the command line, stored in the document.
        batch_sizes: requested batch sizes; by default those of `documents`.
    """
    first = next(iter(documents.values()))
    return OverheadDocument(
        id=DOCUMENT_KINDS["overhead"].id_prefix + min(document.id for document in documents.values()),
        created=min(document.created for document in documents.values()),
        polybench=first.polybench,
        argv=list(argv),
        model=first.settings.model,
        input_kind=first.settings.input_kind,
        threads=first.settings.threads,
        host=first.host,
        batch_sizes=sorted(batch_sizes or documents),
        studies=[documents[size].id for size in sorted(documents)],
        configurations=[_configuration_overhead(result.configuration, documents) for result in first.results],
        warnings=sweep_warnings([({"batch_size": size}, document) for size, document in documents.items()]),
    )


def _configuration_overhead(configuration: str, documents: Mapping[int, StudyDocument]) -> ConfigurationOverhead:
    results = [document.result(configuration) for document in documents.values()]
    measured = {result.workload.batch_size: result for result in results if result.is_ranked}
    failing = (one for one in results if not one.is_ranked or one.status == "interrupted")
    reported = next(failing, results[0])
    row = ConfigurationOverhead(
        **status_fields(reported),
        points=[_point(size, result) for size, result in sorted(measured.items())],
    )
    row.reason = row.reason or (None if reported.is_ranked else reported.parity.reason)
    process_times = [_process_step_seconds(result) for result in measured.values()]
    processes = list(zip(*process_times, strict=False))  # keeps the processes that all results have
    if len(measured) < 2 or not processes:
        return row
    fit = fit_overhead(list(measured), processes)
    row.overhead_seconds, row.seconds_per_item = fit.overhead, fit.per_item
    row.ci95 = OverheadIntervals(fit.overhead_ci95, fit.per_item_ci95)
    row.batch_size_at_50pct_overhead, row.max_relative_residual = (
        fit.batch_size_at_50pct_overhead,
        fit.max_relative_residual,
    )
    calls = [
        result.python_call_overhead_seconds
        for result in measured.values()
        if result.python_call_overhead_seconds is not None
    ]
    row.python_call_overhead_seconds = median(calls) if calls else None
    return row


def _process_step_seconds(result: Result) -> list[float]:
    """Return the typical step time of each process."""
    return [math.exp(level) for level in process_log_medians(unaffected_step_times(result))]


def _point(size: int, result: Result) -> OverheadPoint:
    assert result.step_time is not None
    return OverheadPoint(size, result.step_time.median, result.step_time.ci95)


def thread_pool_grids(points: Sequence[tuple[dict[str, int], StudyDocument]]) -> list[ThreadPoolGrid]:
    """Return a grid for each engine, device and point of the other axes, if BLAS had several pool sizes.

    The engine's build information has the sizes. If two configurations have the same sizes, such as a plain
    engine with one thread and one of its variants, the first one counts.
    """
    grids: dict[tuple[str, tuple[tuple[str, int], ...]], dict[tuple[int, int], ThreadPoolSizes]] = {}
    for parameters, document in points:
        others = tuple((axis, value) for axis, value in parameters.items() if axis != "threads")
        for result in document.results:
            for one in _sizes(result):
                key = _without_pool_variants(result), others
                grids.setdefault(key, {}).setdefault((one.julia, one.blas), one)
    return [
        ThreadPoolGrid(
            configuration,
            dict(others),
            list(sizes.values()),
            min(sizes.values(), key=lambda one: one.step_seconds),
        )
        for (configuration, others), sizes in grids.items()
        if len({one.blas for one in sizes.values()}) > 1
    ]


def _sizes(result: Result) -> Iterator[ThreadPoolSizes]:
    build = result.versions.get("build", {})
    step = result.step_time
    if result.is_ranked and step is not None and {"julia_threads", "blas_threads"} <= set(build):
        julia, blas = int(build["julia_threads"]), int(build["blas_threads"])
        yield ThreadPoolSizes(julia, blas, step.median, step.ci95)


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
