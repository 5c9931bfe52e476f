"""Compares results with each other: speed-up, cost, break-even. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from polybench.networks.model import Model
from polybench.results.interference import inconclusive_reason, unaffected_step_times
from polybench.schema import units
from polybench.schema.measurements import PeakMeasurement
from polybench.schema.resources import Allocations, Cost, PeakComparison
from polybench.schema.result import (
    SINGLE_PROCESS,
    AccuracyDifference,
    BaselineComparison,
    BreakEven,
    Communication,
    Comparison,
    Interval,
    Result,
    Scaling,
    Scope,
    Training,
)
from polybench.stats import statistics
from polybench.stats.between_studies import LogRatioChange, compare_studies

ComparisonT = TypeVar("ComparisonT", bound=Comparison | AccuracyDifference)


def add_comparisons(
    results: Sequence[Result],
    baseline: str | None,
    prices: Mapping[str, float],
    memory_groups: Sequence[Collection[str]] = (),
) -> None:
    """Fill in the fields that depend on other configurations, for ranked ones.

    `prices` are dollars per hour by device; the baseline is None if nothing was measured. Only configurations of one
    memory group were measured side by side.
    """
    by_name = {result.configuration: result for result in results}
    has_replicas = any(result.workload.replicas > 1 for result in results)
    for result in results:
        if baseline is not None and result.is_ranked:
            result.vs_baseline = _compare_with_baseline(by_name[baseline], result)
            result.allocations = _compare_allocations(by_name[baseline], result)
            result.accuracy_difference = _accuracy_difference(by_name[baseline], result)
        result.gpu_speedup = _gpu_speedup(result, results)
        result.scaling = _scaling(result, results) if has_replicas else None
        _mark_memory_groups(result, memory_groups)
    _add_break_even(results)
    add_costs(results, baseline, prices)
    _correct_for_number(results)


def _mark_memory_groups(result: Result, memory_groups: Sequence[Collection[str]]) -> None:
    """Mark the comparisons of a result with those that no memory group contains beside it."""
    for name in ("vs_baseline", "gpu_speedup", "scaling"):
        found = getattr(result, name)
        if found and memory_groups and not any({result.configuration, found.baseline} <= set(g) for g in memory_groups):
            setattr(result, name, msgspec.structs.replace(found, side_by_side=False))


def _correct_for_number(results: Sequence[Result]) -> None:
    """Correct the p-values of all comparisons that a table puts into sentences for their number."""
    fields = [(result, name) for result in results for name in ("vs_baseline", "gpu_speedup", "accuracy_difference")]
    corrected = correct_for_number(
        [getattr(result, name) if result.is_for_production else None for result, name in fields]
    )
    for (result, name), comparison in zip(fields, corrected, strict=True):
        if comparison is not None:
            setattr(result, name, comparison)


def correct_for_number(comparisons: Sequence[ComparisonT | None]) -> list[ComparisonT | None]:
    """Return comparisons that are shown together, with p-values corrected for their number by Holm's method."""
    tested = {number: one.p_value for number, one in enumerate(comparisons) if one and one.p_value is not None}
    corrected = dict(zip(tested, statistics.correct_p_values(list(tested.values())), strict=True))
    return [
        msgspec.structs.replace(one, p_value=corrected[number]) if one and number in corrected else one
        for number, one in enumerate(comparisons)
    ]


def compare_results(baseline: Result, other: Result) -> Comparison | None:
    """Compare two results of one study; None if no process was measured for both."""
    baseline_times, other_times = unaffected_step_times(baseline), unaffected_step_times(other)
    if other is baseline:
        scope: Scope = "processes" if len(baseline_times) > 1 else "single_process"
        return Comparison(baseline.configuration, 1.0, None, scope)
    try:
        ratio = statistics.ratio(baseline_times, other_times)
    except ValueError:
        return None
    speedup, interval, scope, p_value = ratio
    reason = _inconclusive_reason(baseline, other, interval, scope)
    return Comparison(baseline.configuration, speedup, interval, scope, reason, p_value)


def _inconclusive_reason(baseline: Result, other: Result, interval: Interval | None, scope: Scope) -> str | None:
    """Return why a ratio supports no conclusion; None if its interval decides."""
    if (reason := inconclusive_reason(baseline, other)) is not None:
        return reason
    if scope == "single_process":
        return SINGLE_PROCESS
    return units.describe_too_wide(interval)


def _compare_with_baseline(baseline: Result, other: Result) -> BaselineComparison | None:
    """Compare two results, including their typical steps."""
    found = compare_results(baseline, other)
    if found is None or baseline.step_time is None or other.step_time is None:
        return None
    typical = baseline.step_time.median / other.step_time.median
    return BaselineComparison(**msgspec.structs.asdict(found), typical_speedup=typical)


def compare_throughput(baseline: Result, other: Result, shifts: LogRatioChange | None = None) -> Comparison:
    """Compare the items per second of two measured results of different studies; batch sizes may differ.

    The interval contains the difference of the studies' shifts. Without it, both are points of a sweep, which were
    measured in turns, so their process runs form pairs.
    """
    times = unaffected_step_times(baseline), unaffected_step_times(other)
    work = other.workload.batch_size / baseline.workload.batch_size
    if shifts:
        found = compare_studies(*times, shifts._replace(log=-math.log(work)))
    else:
        found = statistics.compare_turns(*times, work)
    reason = _inconclusive_reason(baseline, other, found.ci95, found.scope)
    return Comparison(baseline.configuration, *found[:3], reason, found.p_value)


def _accuracy_difference(baseline: Result, other: Result) -> AccuracyDifference | None:
    """Compare accuracies seed by seed, since all configurations start from the same weights.

    Returns None unless both completed the same trainings. With a target, trainings stop when they reach it, so the
    times to it are compared instead.
    """
    baseline_trainings, other_trainings = ([t for t in result.trainings if t.complete] for result in (baseline, other))
    trainings = [(training.seed, len(training.epochs)) for training in baseline_trainings]
    same = trainings == [(training.seed, len(training.epochs)) for training in other_trainings]
    epochs = {number for _, number in trainings}
    if other is baseline or not same or len(epochs) != 1 or baseline.has_target:
        return None
    pairs = [
        (one.accuracy, two.accuracy)
        for one, two in zip(baseline_trainings, other_trainings, strict=True)
        if one.accuracy is not None and two.accuracy is not None
    ]
    if len(pairs) < len(trainings):
        return None
    value, interval, p_value = statistics.difference(*zip(*pairs, strict=True))
    return AccuracyDifference(baseline.configuration, value, interval, epochs.pop(), len(pairs), p_value)


def _gpu_speedup(result: Result, results: Sequence[Result]) -> Comparison | None:
    """Compare a result on a GPU with the same engine on the CPU.

    The CPU result has the same precision, variant and environment if possible. Otherwise it has fp32 (CPUs
    have no tf32), no variant, and polybench's own environment.
    """
    if result.device == "cpu" or not result.is_ranked:
        return None
    on_cpu = {
        (other.workload.precision, other.variant, other.environment): other
        for other in reversed(results)  # the first of several repeats wins
        if (other.device, other.engine) == ("cpu", result.engine) and other.is_ranked and other.workload.replicas == 1
    }
    environments = (result.environment, None)
    for key in itertools.product((result.workload.precision, "fp32"), (result.variant, None), environments):
        if (cpu := on_cpu.get(key)) is not None:
            return compare_results(cpu, result)
    return None


def dollars_per_epoch(result: Result, prices: Mapping[str, float]) -> float | None:
    """Return time x price of all devices; None without a time or a price, or if the time has a caveat."""
    price = prices.get(result.device)
    if price is None or result.epoch_seconds is None or result.caveat is not None:
        return None
    return result.epoch_seconds / 3600 * price * device_count(result)


def add_costs(results: Sequence[Result], baseline: str | None, prices: Mapping[str, float]) -> None:
    """Fill in the cost of an epoch, normalized to the baseline's as in the 2017 cloud comparison, of ranked results.

    `prices` are dollars per hour by device.
    """
    for reference in (result for result in results if result.configuration == baseline):
        baseline_dollars = dollars_per_epoch(reference, prices)
        for result in results:
            dollars = dollars_per_epoch(result, prices) if result.is_ranked else None
            result.cost = None if dollars is None else compare_costs(reference, result, baseline_dollars, dollars)


def compare_costs(
    baseline: Result,
    result: Result,
    baseline_dollars: float | None,
    dollars: float,
    shifts: LogRatioChange | None = None,
) -> Cost:
    """Compare the costs of an epoch of two results, which one study measured side by side.

    If two studies measured them, the interval contains the difference of their `shifts`.
    """
    relative = dollars / baseline_dollars if baseline_dollars else None
    if relative is None or result is baseline:
        return Cost(dollars, relative)
    times, baseline_times = _epoch_times(result), _epoch_times(baseline)
    reason = inconclusive_reason(baseline, result)
    if bool(result.trainings) != bool(baseline.trainings):
        return Cost(dollars, relative, None, reason or "only one of both was trained for whole epochs")
    if min(len(times), len(baseline_times)) < 2:
        reason = reason or SINGLE_PROCESS
    if shifts is None:
        ratio, interval, *_ = statistics.ratio(times, baseline_times)
    else:
        ratio, interval, *_ = compare_studies(times, baseline_times, shifts)
    return Cost(
        dollars, relative, interval and (relative / ratio * interval[0], relative / ratio * interval[1]), reason
    )


def _epoch_times(result: Result) -> list[list[list[float]]]:
    """Return the times behind the time of an epoch: measured epochs, or the steps of an epoch."""
    return trained_epochs(result.trainings) or unaffected_step_times(result)


def trained_epochs(trainings: Sequence[Training]) -> list[list[list[float]]]:
    """Return the seconds of each epoch as [training][epoch][0], like step times."""
    return [[[epoch.seconds] for epoch in training.epochs] for training in trainings if training.epochs]


def _compare_allocations(baseline: Result, other: Result) -> Allocations:
    """Add the ratio of native bytes to the baseline's; only these are counted the same way in all engines."""
    baseline_native, native = baseline.allocations.native, other.allocations.native
    if baseline_native is None or native is None or not baseline_native.bytes_per_step:
        return other.allocations
    ratio = native.bytes_per_step / baseline_native.bytes_per_step
    return msgspec.structs.replace(other.allocations, native=msgspec.structs.replace(native, ratio_to_baseline=ratio))


def _add_break_even(results: Sequence[Result]) -> None:
    """Compare each ranked result with each other one; others have no break-even."""
    started = [
        (one, one.startup.cold_start_seconds, one.step_time.mean)
        for one in results
        if one.is_ranked and one.startup is not None and one.step_time is not None
    ]
    for result in results:
        result.break_even_steps = []
    for result, start, step in started:
        result.break_even_steps = [
            BreakEven(other.configuration, statistics.steps_to_break_even(start, step, other_start, other_step))
            for other, other_start, other_step in started
            if other is not result
        ]


SOURCE = "whole steps minus steps without the all-reduce, timed alternately"


def allreduce_share(seconds_per_step: tuple[float, float] | None) -> Communication | None:
    """Return the cost of the all-reduce from a step's seconds with and without it; None if it is unknown."""
    if seconds_per_step is None:
        return None
    with_allreduce, without = seconds_per_step
    seconds = max(0.0, with_allreduce - without)
    return Communication(seconds, seconds / with_allreduce, SOURCE)


def device_count(result: Result) -> int:
    """Return the number of devices; 1 on the CPU, where all replicas share the same threads."""
    return 1 if result.device == "cpu" else result.workload.replicas


def _scaling(result: Result, results: Sequence[Result]) -> Scaling | None:
    """Return the scaling of a ranked result if the study measured it with one replica and with several."""
    same_otherwise = [
        other for other in results if other.is_ranked and _without_replicas(other) == _without_replicas(result)
    ]
    single = next((other for other in same_otherwise if other.workload.replicas == 1), None)
    if not result.is_ranked or single is None or all(one.workload.replicas == 1 for one in same_otherwise):
        return None
    found = compare_results(single, result)
    if found is None:
        return None
    count = device_count(result)
    return Scaling(*msgspec.structs.astuple(found), devices=count, efficiency=found.speedup / count)


def _without_replicas(result: Result) -> tuple[str, str, str]:
    return result.engine_name, result.device, result.workload.precision


def compare_with_peak(result: Result, model: Model, peaks: Sequence[PeakMeasurement]) -> PeakComparison | None:
    """Return the fraction of this machine's peak that a measured configuration reaches."""
    peaks_by_kind = {peak.kind: peak for peak in peaks}
    product, convolution, triad = (peaks_by_kind.get(kind) for kind in ("gemm", "convolution", "memory_bandwidth"))
    is_of_one_device = device_count(result) == 1
    if product is None or result.step_time is None or not result.is_ranked or not is_of_one_device:
        return None
    workload = result.workload
    conditions = f"{product.engine} on {product.device} in {product.precision}"
    return PeakComparison(
        flops_per_second=product.value,
        fraction=2 * model.macs(workload.pass_) * workload.batch_size / result.step_time.mean / product.value,
        source=f"{product.shape}, {conditions}; polybench peak, {product.measured_at.partition('T')[0]}",
        convolution_flops_per_second=convolution.value if convolution else None,
        bytes_per_second=triad.value if triad else None,
    )
