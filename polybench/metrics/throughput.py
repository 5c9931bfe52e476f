"""Images trained on in a second."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import Result
from polybench.metrics.base import Metric


def _value(result: Result) -> float | None:
    return result.samples_per_second


def _text(result: Result) -> str:
    return "" if result.samples_per_second is None else units.count(result.samples_per_second)


THROUGHPUT = Metric(
    name="throughput",
    title="images per s",
    unit="images/s",
    better="higher",
    value=_value,
    text=_text,
)
