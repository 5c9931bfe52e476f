"""Peak resident set of a worker in host memory."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import Result
from polybench.metrics.base import Metric


def _value(result: Result) -> float | None:
    return result.memory.peak_rss_bytes


def _text(result: Result) -> str:
    return "" if result.memory.peak_rss_bytes is None else units.nbytes(result.memory.peak_rss_bytes)


PEAK_MEMORY = Metric(
    name="peak_memory",
    title="peak memory",
    unit="B",
    better="lower",
    value=_value,
    text=_text,
)
