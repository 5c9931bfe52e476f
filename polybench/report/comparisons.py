"""What one cell's numbers mean beside another's: speed-up, cost, break-even. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from polybench.core import statistics
from polybench.core.document.resources import Allocations, Cost
from polybench.core.document.result import Result
from polybench.core.document.times import BlockMeans, BreakEven, DeviceSpeedup, Relative
from polybench.core.document.training import AccuracyDifference
from polybench.core.shifts import ratio_of_studies
from polybench.report.disturbance import no_verdict, quiet_steps
from polybench.report.replicas import devices, scaling


def relate(results: Sequence[Result], base: str | None, prices: Mapping[str, float]) -> None:
    """Fill in what depends on other cells; only a ranked cell is compared.

    Args:
        results: every cell of a study, changed in place.
        base: the cell that others are compared with; None when nothing could be measured.
        prices: dollars an hour, by device.
    """
    by_name = {result.cell: result for result in results}
    for result in results:
        if base is not None and result.ranked:
            result.relative = relative(by_name[base], result)
            result.block_means = _relative_means(by_name[base], result)
            result.cost = _cost(prices, result, by_name[base])
            result.allocations = _relative_allocations(by_name[base], result)
            result.accuracy_difference = _accuracy_difference(by_name[base], result)
        result.device_speedup = _device_speedup(result, results)
        result.break_even = _break_even(result, results)
        result.scaling = scaling(result, results, relative)


def relative(base: Result, other: Result) -> Relative | None:
    """Speed of `other` in relation to `base`; None where no undisturbed round was measured by both."""
    ours, theirs = quiet_steps(base), quiet_steps(other)
    if other is base:
        return Relative(base.cell, 1.0, None, "processes" if len(ours) > 1 else "within one run")
    try:
        ratio = statistics.ratio(ours, theirs)
    except ValueError:  # no process and round in common
        return None
    return Relative(base.cell, ratio.value, ratio.interval95, ratio.scope, no_verdict(base, other))


def _relative_means(base: Result, other: Result) -> BlockMeans | None:
    """With the speed in relation to `base`, where there is one."""
    if other.block_means is None or other.relative is None:
        return other.block_means
    if other is base:
        return msgspec.structs.replace(other.block_means, speedup=1.0)
    ratio = statistics.ratio(quiet_steps(base), quiet_steps(other), fmean)
    return msgspec.structs.replace(
        other.block_means, speedup=ratio.value, speedup_interval95=ratio.interval95
    )


def relative_across_studies(base: Result, other: Result) -> statistics.Ratio:
    """How much faster `other` works on images than `base`, of another study, perhaps of another batch size.

    A step of another batch size is another amount of work: images a second are what compares.

    Raises:
        ValueError: one of them was not measured.
    """
    found = ratio_of_studies(quiet_steps(base), quiet_steps(other))
    work = other.workload.batch_size / base.workload.batch_size
    interval = found.interval95 and (work * found.interval95[0], work * found.interval95[1])
    return statistics.Ratio(work * found.value, interval, found.scope)


def _accuracy_difference(base: Result, other: Result) -> AccuracyDifference | None:
    """Seed by seed, since a cell starts from the same weights as the baseline.

    None unless both completed the same trainings. Where each training ended once it was accurate enough,
    its time is what differs (`time_to_accuracy`), not its accuracy.
    """
    ours, theirs = ([t for t in result.trainings if t.complete] for result in (base, other))
    trainings = [(training.seed, len(training.epochs)) for training in ours]
    same = trainings == [(training.seed, len(training.epochs)) for training in theirs]
    epochs = {number for _, number in trainings}
    if other is base or not same or len(epochs) != 1 or base.time_to_accuracy is not None:
        return None
    pairs = [
        (one.accuracy, two.accuracy)
        for one, two in zip(ours, theirs, strict=True)
        if one.accuracy is not None and two.accuracy is not None
    ]
    if len(pairs) < len(trainings):
        return None
    value, interval = statistics.difference(*zip(*pairs, strict=True))
    return AccuracyDifference(base.cell, value, interval, epochs.pop(), len(pairs))


def _device_speedup(result: Result, results: Sequence[Result]) -> DeviceSpeedup | None:
    """Against the CPU: the same variant of the engine, or plain where that was not measured.

    At the same precision, or at fp32: the CPU has no tf32. In the same environment, or in polybench's own.
    """
    if result.device == "cpu" or not result.ranked:
        return None
    on_cpu = {
        (other.workload.precision, other.variant, other.environment): other
        for other in reversed(results)  # the first of several repeats stays
        if (other.device, other.engine) == ("cpu", result.engine)
        and other.ranked
        and other.workload.replicas == 1
    }
    environments = (result.environment, None)
    for like in itertools.product((result.workload.precision, "fp32"), (result.variant, None), environments):
        if (cpu := on_cpu.get(like)) is not None:
            found = relative(cpu, result)
            if found is None:
                return None
            return DeviceSpeedup(cpu.cell, found.speedup, found.interval95, found.scope, found.no_verdict)
    return None


def _cost(prices: Mapping[str, float], result: Result, base: Result) -> Cost | None:
    """Time x price of all devices, normalized to the baseline's, as the 2017 cloud comparison defines it."""
    price, base_price = prices.get(result.device), prices.get(base.device)
    if price is None or result.epoch_seconds is None:
        return None
    dollars = result.epoch_seconds / 3600 * price * devices(result)
    if base_price is None or not base.epoch_seconds:
        return Cost(dollars, None)
    return Cost(dollars, dollars / (base.epoch_seconds / 3600 * base_price * devices(base)))


def _relative_allocations(base: Result, other: Result) -> Allocations:
    """With native bytes over the baseline's: only these are counted the same way in both."""
    ours, theirs = base.allocations.native, other.allocations.native
    if ours is None or theirs is None or not ours.bytes_per_step:
        return other.allocations
    relative = theirs.bytes_per_step / ours.bytes_per_step
    return msgspec.structs.replace(
        other.allocations, native=msgspec.structs.replace(theirs, relative_bytes=relative)
    )


def _break_even(result: Result, results: Sequence[Result]) -> list[BreakEven]:
    """Against each other ranked cell; empty for one that is not ranked itself."""
    if not result.ranked or result.startup is None or result.step_seconds is None:
        return []
    return [
        BreakEven(
            other.cell,
            statistics.steps_to_break_even(
                result.startup.total_seconds,
                result.step_seconds.median,
                other.startup.total_seconds,
                other.step_seconds.median,
            ),
        )
        for other in results
        if other is not result and other.ranked and other.startup and other.step_seconds
    ]
