"""Speed in relation to the baseline cell; above 1 is faster."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import Result
from polybench.metrics.base import Interval, Metric


def _value(result: Result) -> float | None:
    return result.relative.speedup if result.relative else None


def _interval(result: Result) -> Interval | None:
    return result.relative.interval95 if result.relative else None


def _text(result: Result) -> str:
    if result.relative is None:
        return ""
    if result.relative.baseline == result.cell:
        return "1 (baseline)"
    return units.with_interval(result.relative.speedup, result.relative.interval95)


SPEEDUP = Metric(
    name="speedup",
    title="speedup",
    unit="",
    better="higher",
    value=_value,
    text=_text,
    interval=_interval,
)
