"""Turns breakdowns into statements, each with its number and the source of this number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from polybench.analysis.breakdown import (
    BETWEEN_OPERATIONS,
    DATA_WAIT,
    FIXED_COST,
    GARBAGE_COLLECTION,
    MEASUREMENT_DIFFERENCE,
    data_wait_seconds,
)
from polybench.planning.suggested_commands import has_layers
from polybench.results.interference import NOTABLE_FAULT_FRACTION, page_fault_fraction
from polybench.schema import units
from polybench.schema.analyses import Breakdown, Component, ExplainedComparison, Statement
from polybench.schema.result import Result

_NOTABLE = 0.05
"""Fraction of a difference below which a component has no statement."""
_NEGLIGIBLE = 0.01
"""Fraction of a difference below which the sum of an operation is left out."""
_NOTABLE_COLLECTION = 0.02
"""Fraction of a step; the default tolerance."""
_MAX_COMPONENTS = 3
"""Number of statements about components in the direction of the difference; one more is about an offset."""


def pair_statements(
    pair: ExplainedComparison, baseline: Result, other: Result, explainable: bool
) -> Iterator[Statement]:
    """Yield the difference of a pair and its breakdowns, or the reason why there is nothing to explain."""
    if pair.inconclusive_reason is not None:
        yield Statement(
            text=f"The difference between {pair.configuration} and {pair.baseline} is inconclusive:"
            f" {pair.inconclusive_reason}.",
            evidence="speedup",
        )
    if not explainable:
        return
    yield _difference(pair)
    for result in (other, baseline):
        if result.caveat:
            yield Statement(text=f"{result.configuration} is for teaching only: {result.caveat}.", evidence="step_time")
    layers = pair.breakdown("layers")
    if layers is not None:
        yield from _layers(layers)
    yield from (_without_layers(result) for result in (other, baseline) if not has_layers(result))
    batch_size = pair.breakdown("batch size")
    if batch_size is not None:
        yield _batch_size(batch_size, other.workload.batch_size)
    for result in (other, baseline):
        yield from _collector(result)
    yield from _data_wait(baseline, other)
    yield from _page_faults(baseline, other)
    startup = pair.breakdown("start")
    if startup is not None:
        yield _startup(pair, startup, baseline, other)


def _difference(pair: ExplainedComparison) -> Statement:
    amount = _amount(pair.difference_seconds, pair.ci95)
    speedup = units.format_with_ci(pair.speedup, pair.speedup_ci95)
    return Statement(
        text=f"{pair.configuration} takes {amount} {_longer(pair.difference_seconds)} per step than"
        f" {pair.baseline}: {_both(pair)}, {speedup} times the speed.",
        evidence="step_time, speedup",
        seconds=pair.difference_seconds,
    )


def _layers(breakdown: Breakdown) -> Iterator[Statement]:
    source, difference = breakdown.sources[0], breakdown.difference_seconds
    notable = [one for one in breakdown.components if abs(one.difference_seconds) >= _NOTABLE * abs(difference)]
    causes = [one for one in notable if _same_direction(one, breakdown)][:_MAX_COMPONENTS]
    for number, component in enumerate(causes):
        subject = "Another part" if number else "Most of the difference"
        if not number and abs(component.difference_seconds) <= abs(difference) / 2:
            subject = "The largest part of the difference"
        yield _component(subject, component, source)
    offsets = [one for one in notable if not _same_direction(one, breakdown)][-1:]
    yield from (_component("The largest offset", one, source) for one in offsets)
    yield from _sums(breakdown, source)
    yield _unattributed(breakdown, source)


def _component(subject: str, component: Component, source: str) -> Statement:
    amount = _amount(component.difference_seconds, component.ci95)
    return Statement(
        text=f"{subject} comes from {component.name}: {amount} {_longer(component.difference_seconds)},"
        f" {_both(component)}.",
        evidence="gc_time" if component.kind == GARBAGE_COLLECTION else f"{source}: {component.name}",
        seconds=component.difference_seconds,
    )


def _sums(breakdown: Breakdown, source: str) -> Iterator[Statement]:
    """Yield the sums over all layers by operation, unless there is only one."""
    sums: dict[str, float] = {}
    for component in breakdown.components:
        sums[component.kind] = sums.get(component.kind, 0.0) + component.difference_seconds
    direction = math.copysign(1.0, breakdown.difference_seconds)
    texts = [
        f"{kind} {units.format_signed_seconds(seconds)}"
        for kind, seconds in sorted(sums.items(), key=lambda one: -direction * one[1])
        if abs(seconds) >= _NEGLIGIBLE * abs(breakdown.difference_seconds)
    ]
    if len(texts) > 1:
        yield Statement(text=f"Sums by operation: {', '.join(texts)}.", evidence=source)


def _collector(result: Result) -> Iterator[Statement]:
    """Yield the collector's part of a step if it is notable, and a typical step is without it."""
    without = result.seconds_without_collection(_NOTABLE_COLLECTION)
    if without is None or result.step_time is None:
        return
    seconds = result.gc.seconds_per_step or 0.0
    yield Statement(
        text=f"{result.configuration} collects garbage for {units.format_seconds(seconds)} of"
        f" {units.format_seconds(result.step_time.mean)}; a step without it takes {units.format_seconds(without)}.",
        evidence="gc_time",
        seconds=seconds,
    )


def _unattributed(breakdown: Breakdown, source: str) -> Statement:
    unattributed = {one.name: one for one in breakdown.unattributed}
    between_operations, between_measurements = (
        _signed(unattributed[name]) for name in (BETWEEN_OPERATIONS, MEASUREMENT_DIFFERENCE)
    )
    outside = [
        one
        for one in (*breakdown.components, *breakdown.unattributed)
        if one.name in (MEASUREMENT_DIFFERENCE, DATA_WAIT)
    ]
    seconds = breakdown.seconds - sum(one.seconds or 0.0 for one in outside)
    baseline_seconds = breakdown.baseline_seconds - sum(one.baseline_seconds or 0.0 for one in outside)
    return Statement(
        text=f"Unattributed: {between_operations} between operations, and {between_measurements} between this"
        f" study and the layers document, whose steps took {units.format_seconds(seconds)} and"
        f" {units.format_seconds(baseline_seconds)}.",
        evidence=f"{source}: unattributed_seconds",
        seconds=sum(one.difference_seconds for one in breakdown.unattributed),
    )


def _without_layers(result: Result) -> Statement:
    text = f"{result.configuration} has no layer times: only its whole step can be timed."
    return Statement(text=text, evidence="layers")


def _batch_size(breakdown: Breakdown, images: int) -> Statement:
    overhead = next(one for one in breakdown.components if one.name == FIXED_COST)
    items = next(one for one in breakdown.components if one.name != FIXED_COST)
    deviation = sum(one.difference_seconds for one in breakdown.unattributed)

    def amount(component: Component) -> str:
        return f"{units.format_signed_seconds(component.difference_seconds)} ({_both(component)})"

    return Statement(
        text=f"By batch size, {amount(overhead)} is fixed overhead and {amount(items)} comes from"
        f" {units.plural(images, 'image')}; the linear fit is off by {units.format_signed_seconds(deviation)}.",
        evidence=f"overhead, linear fit to {len(breakdown.sources)} studies, {breakdown.sources[0]} and others",
        seconds=overhead.difference_seconds,
    )


def _data_wait(baseline: Result, other: Result) -> Iterator[Statement]:
    seconds, baseline_seconds = data_wait_seconds(other), data_wait_seconds(baseline)
    if seconds is not None and baseline_seconds is not None:
        difference = seconds - baseline_seconds
        yield Statement(
            text=f"{other.configuration} waits {units.format_seconds(seconds)} per step for data,"
            f" {baseline.configuration} {units.format_seconds(baseline_seconds)}:"
            f" {units.format_signed_seconds(difference)} of the difference.",
            evidence="data_wait_time",
            seconds=difference,
        )


def _page_faults(baseline: Result, other: Result) -> Iterator[Statement]:
    """Yield the cost of notable page faults. Layer times include it, because a layer touches its fresh memory."""
    fractions = [page_fault_fraction(result.interference) for result in (other, baseline)]
    known = [fraction for fraction in fractions if fraction is not None]
    if len(known) < len(fractions) or max(known) <= NOTABLE_FAULT_FRACTION:
        return
    seconds, baseline_seconds = known[0] * other.step_seconds, known[1] * baseline.step_seconds
    yield Statement(
        text=f"Page faults take at most {units.format_seconds(seconds)} of {other.configuration}'s step and"
        f" {units.format_seconds(baseline_seconds)} of {baseline.configuration}'s; layer times include them.",
        evidence="page_faults",
        seconds=seconds - baseline_seconds,
    )


def _startup(pair: ExplainedComparison, breakdown: Breakdown, baseline: Result, other: Result) -> Statement:
    assert other.startup is not None
    assert baseline.startup is not None
    phases = ", ".join(
        f"{one.name} {units.format_signed_seconds(one.difference_seconds)}" for one in breakdown.components
    )
    is_longer = breakdown.difference_seconds >= 0
    return Statement(
        text=f"The cold start of {pair.configuration} is"
        f" {units.format_seconds(abs(breakdown.difference_seconds))} {'longer' if is_longer else 'shorter'}:"
        f" {units.format_seconds(other.startup.cold_start_seconds)} vs."
        f" {units.format_seconds(baseline.startup.cold_start_seconds)} to the end of the first step"
        f" ({phases}).",
        evidence="cold_start",
        seconds=breakdown.difference_seconds,
    )


def _both(times: ExplainedComparison | Breakdown | Component) -> str:
    return f"{units.format_seconds(times.seconds or 0.0)} vs. {units.format_seconds(times.baseline_seconds or 0.0)}"


def _same_direction(component: Component, breakdown: Breakdown) -> bool:
    return math.copysign(1.0, component.difference_seconds) == math.copysign(1.0, breakdown.difference_seconds)


def _longer(seconds: float) -> str:
    return "longer" if seconds >= 0 else "less"


def _signed(component: Component) -> str:
    """Format a difference with its sign and its interval."""
    texts = map(units.format_signed_seconds, component.ci95 or ())
    interval = " to ".join(texts)
    return units.format_signed_seconds(component.difference_seconds) + (f" ({interval})" if interval else "")


def _amount(seconds: float, interval: tuple[float, float] | None) -> str:
    """Format the absolute difference with its interval."""
    if interval is None:
        return units.format_seconds(abs(seconds))
    low, high = interval if seconds >= 0 else (-interval[1], -interval[0])
    return f"{units.format_seconds(abs(seconds))} ({units.format_seconds(low)} to {units.format_seconds(high)})"
