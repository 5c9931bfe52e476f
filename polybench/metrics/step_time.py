"""Time of one training step, a typical one."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.result import Result
from polybench.metrics.base import Metric


def _in_words(result: Result) -> str:
    if result.step_seconds is None:
        return ""
    return units.seconds_within(result.step_seconds.median, result.step_seconds.interval95)


STEP_TIME = Metric(
    name="step_time",
    title="step time",
    unit="s",
    better="lower",
    value=lambda result: result.step_seconds.median if result.step_seconds else None,
    in_words=_in_words,
    interval=lambda result: result.step_seconds.interval95 if result.step_seconds else None,
)
