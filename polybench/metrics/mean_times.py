"""Columns of the group `speed`, from means of timing blocks instead of medians: they include every pause."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.result import Result

_DESCRIPTION = "from means of timing blocks: includes pauses of the garbage collector, which medians may miss"
_HINT = "not in this study"


def _format_step(result: Result) -> str:
    if (means := result.mean_step_time) is None:
        return ""
    return units.format_seconds_with_margin(means.seconds, means.ci95)


def _format_speedup(result: Result) -> str:
    if (comparison := result.vs_baseline) is None or comparison.mean_speedup is None:
        return ""
    return units.format_with_ci(comparison.mean_speedup, comparison.mean_ci95)


MEAN_TIMES = (
    Metric(
        name="mean_step_time",
        title="mean step time",
        unit="s",
        better="lower",
        value=lambda result: result.mean_step_time.seconds if result.mean_step_time else None,
        format_result=_format_step,
        interval=lambda result: result.mean_step_time.ci95 if result.mean_step_time else None,
        description=_DESCRIPTION,
        unavailable_hint=_HINT,
    ),
    Metric(
        name="mean_throughput",
        title="mean images per s",
        unit="images/s",
        better="higher",
        value=lambda result: result.mean_step_time.items_per_second if result.mean_step_time else None,
        format_value=units.format_count,
        unavailable_hint=_HINT,
    ),
    Metric(
        name="mean_epoch_time",
        title="mean epoch time",
        unit="s",
        better="lower",
        value=lambda result: result.mean_step_time.epoch_seconds if result.mean_step_time else None,
        format_value=units.format_seconds,
        unavailable_hint=_HINT,
    ),
    Metric(
        name="mean_speedup",
        title="mean speedup",
        unit="",
        better="higher",
        value=lambda result: result.vs_baseline.mean_speedup if result.vs_baseline else None,
        format_result=_format_speedup,
        interval=lambda result: result.vs_baseline.mean_ci95 if result.vs_baseline else None,
        unavailable_hint=_HINT,
    ),
)
