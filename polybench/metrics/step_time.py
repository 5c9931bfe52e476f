"""Median time of one training step."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import Result
from polybench.metrics.base import Interval, Metric


def _value(result: Result) -> float | None:
    return result.step_seconds.median if result.step_seconds else None


def _interval(result: Result) -> Interval | None:
    return result.step_seconds.interval95 if result.step_seconds else None


def _text(result: Result) -> str:
    if result.step_seconds is None:
        return ""
    median = result.step_seconds.median
    interval = _interval(result)
    if interval is None:
        return units.seconds(median)
    low, high = interval
    return f"{units.seconds(median)} ±{units.percent((high - low) / 2 / median)}"


STEP_TIME = Metric(
    name="step_time",
    title="step time",
    unit="s",
    better="lower",
    value=_value,
    text=_text,
    interval=_interval,
)
