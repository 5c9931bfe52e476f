"""Median time of a training step."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.result import Result


def _format(result: Result) -> str:
    if result.step_time is None:
        return ""
    return units.format_seconds_with_margin(result.step_time.median, result.step_time.ci95)


STEP_TIME = Metric(
    name="step_time",
    title="step time",
    unit="s",
    better="lower",
    value=lambda result: result.step_time.median if result.step_time else None,
    format_result=_format,
    interval=lambda result: result.step_time.ci95 if result.step_time else None,
)
