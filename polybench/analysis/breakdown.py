"""Breaks down the difference between two configurations into components that add up to it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import msgspec

from polybench.results.interference import unaffected_step_times
from polybench.results.sweep import build_overhead_document
from polybench.schema.analyses import Breakdown, Component
from polybench.schema.measurements import STEP, ConfigurationLayers, LayerRow, LayersDocument
from polybench.schema.result import Interval, Result
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import process_means, student_interval

Rounds = Sequence[Sequence[float]]
"""Seconds as [process][round]."""

FIXED_COST = "fixed overhead"
BETWEEN_OPERATIONS = "between operations"
MEASUREMENT_DIFFERENCE = "between the two measurements"
FIT_DEVIATION = "deviation from the linear fit"
GARBAGE_COLLECTION, DATA_WAIT = "garbage collection", "waiting for data"

_UNATTRIBUTED = "unattributed"


def step_time_difference(baseline: Result, other: Result) -> tuple[float, Interval | None]:
    """Return by how many seconds the step of `other` is longer, with an interval over process pairs.

    The interval is centered on this difference. The mean difference of the pairs differs slightly from it, if one
    configuration has more processes.
    """
    levels = zip(*(process_means(unaffected_step_times(one)) for one in (other, baseline)), strict=False)
    differences = [level - baseline_level for level, baseline_level in levels]
    seconds = other.step_seconds - baseline.step_seconds
    interval = student_interval(differences)
    return seconds, _shifted(interval, seconds - fmean(differences)) if interval else None


def layer_breakdown(baseline: Result, other: Result, document: LayersDocument) -> Breakdown | None:
    """Break down the difference by the operations of a step; None if one configuration has no layer times.

    Layer times exclude garbage collection. Its component comes from this study, whose steps are normal training
    steps. Two components are unattributed: time between operations, and the difference between this study's steps and
    those of the layers document. Both are known for each configuration, so the components of a configuration add up to
    its step time as well.
    """
    layers = document.configuration(other.configuration)
    baseline_layers = document.configuration(baseline.configuration)
    if layers is None or baseline_layers is None or not layers.rows or not baseline_layers.rows:
        return None
    rows, baseline_rows = ({(row.layer, row.operation): row for row in one.rows} for one in (layers, baseline_layers))
    components = [
        _row_component(rows.get(key), baseline_rows.get(key)) for key in dict.fromkeys([*rows, *baseline_rows])
    ]
    collection = _component(GARBAGE_COLLECTION, other.gc.seconds_per_step, baseline.gc.seconds_per_step)
    waiting = _component(DATA_WAIT, data_wait_seconds(other), data_wait_seconds(baseline))
    components += [one for one in (collection, waiting) if (one.seconds, one.baseline_seconds) != (None, None)]
    seconds, baseline_seconds = other.step_seconds, baseline.step_seconds
    step, baseline_step = layers.step_seconds, baseline_layers.step_seconds
    assert step is not None  # it has rows
    assert baseline_step is not None
    in_step = [one for one in components if one is not waiting]
    attributed = sum(one.difference_seconds for one in in_step)
    between_operations = Component(
        name=BETWEEN_OPERATIONS,
        kind=_UNATTRIBUTED,
        difference_seconds=step - baseline_step - attributed,
        seconds=step - sum(one.seconds or 0.0 for one in in_step),
        baseline_seconds=baseline_step - sum(one.baseline_seconds or 0.0 for one in in_step),
        ci95=_shifted(_interval(_unattributed(layers), _unattributed(baseline_layers)), -collection.difference_seconds),
    )
    between_measurements = Component(
        name=MEASUREMENT_DIFFERENCE,
        kind=_UNATTRIBUTED,
        difference_seconds=seconds - baseline_seconds - (step - baseline_step) - waiting.difference_seconds,
        seconds=seconds - step - (waiting.seconds or 0.0),
        baseline_seconds=baseline_seconds - baseline_step - (waiting.baseline_seconds or 0.0),
    )
    unattributed = [between_operations, between_measurements]
    return _breakdown("layers", (seconds, baseline_seconds), components, unattributed, [document.id])


def batch_size_breakdown(baseline: Result, other: Result, studies: Mapping[int, StudyDocument]) -> Breakdown | None:
    """Break down the difference into fixed overhead and the cost of the items; None without a linear fit.

    `studies` contain both configurations, by batch size.
    """
    both = {
        size: msgspec.structs.replace(
            study, results=[study.result(other.configuration), study.result(baseline.configuration)]
        )
        for size, study in sorted(studies.items())
    }
    fit, baseline_fit = build_overhead_document(both, []).configurations
    if fit.overhead_seconds is None or baseline_fit.overhead_seconds is None:
        return None
    items, input_kind = other.workload.batch_size, next(iter(studies.values())).settings.input_kind
    components = [
        _component(FIXED_COST, fit.overhead_seconds, baseline_fit.overhead_seconds),
        _component(f"the {input_kind}s", *(items * (one.seconds_per_item or 0.0) for one in (fit, baseline_fit))),
    ]
    seconds = other.step_seconds, baseline.step_seconds
    deviation = Component(
        name=FIT_DEVIATION,
        kind=_UNATTRIBUTED,
        difference_seconds=seconds[0] - seconds[1] - sum(one.difference_seconds for one in components),
    )
    sources = [study.id for study in both.values()]
    return _breakdown("batch size", seconds, components, [deviation], sources)


def startup_breakdown(baseline: Result, other: Result) -> Breakdown | None:
    """Break down the difference of the cold starts by phase; None if one is unknown."""
    startup, baseline_startup = other.startup, baseline.startup
    if startup is None or baseline_startup is None:
        return None
    fields = {
        name: f"{name.replace(' ', '_')}_seconds" for name in ("process", "import", "build", "data", "first step")
    }
    components = [
        _component(name, getattr(startup, field), getattr(baseline_startup, field)) for name, field in fields.items()
    ]
    seconds = startup.cold_start_seconds, baseline_startup.cold_start_seconds
    return _breakdown("start", seconds, components, [], [])


def _breakdown(
    kind: Literal["layers", "batch size", "start"],
    both_seconds: tuple[float, float],
    components: Iterable[Component],
    unattributed: list[Component],
    sources: list[str],
) -> Breakdown:
    seconds, baseline_seconds = both_seconds
    direction = math.copysign(1.0, seconds - baseline_seconds)
    return Breakdown(
        kind=kind,
        difference_seconds=seconds - baseline_seconds,
        seconds=seconds,
        baseline_seconds=baseline_seconds,
        components=sorted(components, key=lambda one: -direction * one.difference_seconds),
        unattributed=unattributed,
        sources=sources,
    )


def _component(name: str, seconds: float | None, baseline_seconds: float | None) -> Component:
    return Component(
        name=name,
        kind=name,
        difference_seconds=(seconds or 0.0) - (baseline_seconds or 0.0),
        seconds=seconds,
        baseline_seconds=baseline_seconds,
    )


def _row_component(row: LayerRow | None, baseline_row: LayerRow | None) -> Component:
    either = row or baseline_row
    assert either is not None
    seconds, baseline_seconds = (one.seconds_per_step if one else None for one in (row, baseline_row))
    return Component(
        name=either.operation if either.layer == STEP else f"{either.layer}, {either.operation}",
        kind=either.operation,
        difference_seconds=(seconds or 0.0) - (baseline_seconds or 0.0),
        ci95=_interval(row.seconds, baseline_row.seconds) if row and baseline_row else None,
        seconds=seconds,
        baseline_seconds=baseline_seconds,
    )


def data_wait_seconds(result: Result) -> float | None:
    """Return how long the training thread waits for data per step; None if it is unknown."""
    return result.pipeline.data_wait_seconds_per_step if result.pipeline else None


def _unattributed(layers: ConfigurationLayers) -> Rounds:
    """Subtract the operations from the whole step, which includes garbage collection, in each round."""
    assert layers.step_times is not None
    operations = zip(*(row.seconds for row in layers.rows), strict=False)
    return [
        [fmean(steps) - sum(seconds) for steps, seconds in zip(rounds, zip(*of_process, strict=False), strict=False)]
        for rounds, of_process in zip(layers.step_times.values, operations, strict=False)
    ]


def _interval(rounds: Rounds, baseline_rounds: Rounds) -> Interval | None:
    """Return the interval of the mean difference, with each process, or round of one process, paired."""
    processes = [both for both in zip(rounds, baseline_rounds, strict=False) if all(both)]
    if len(processes) == 1:
        return student_interval([seconds - other for seconds, other in zip(*processes[0], strict=False)])
    return student_interval([fmean(seconds) - fmean(other) for seconds, other in processes])


def _shifted(interval: Interval | None, by: float) -> Interval | None:
    return interval and (interval[0] + by, interval[1] + by)
