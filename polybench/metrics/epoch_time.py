"""Time of one pass over the training images."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import Result
from polybench.metrics.base import Metric


def _value(result: Result) -> float | None:
    return result.epoch_seconds


def _text(result: Result) -> str:
    return "" if result.epoch_seconds is None else units.seconds(result.epoch_seconds)


EPOCH_TIME = Metric(
    name="epoch_time",
    title="epoch time",
    unit="s",
    better="lower",
    value=_value,
    text=_text,
)
