"""From the start of a process to the end of its first training step."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import Result
from polybench.metrics.base import Metric


def _value(result: Result) -> float | None:
    return result.startup.total_seconds if result.startup else None


def _text(result: Result) -> str:
    return "" if result.startup is None else units.seconds(result.startup.total_seconds)


COLD_START = Metric(
    name="cold_start",
    title="cold start",
    unit="s",
    better="lower",
    value=_value,
    text=_text,
)
