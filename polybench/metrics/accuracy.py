"""How well whole trainings classify the test images, and how long that took."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.result import Result
from polybench.metrics.base import Metric


def _in_words(result: Result) -> str:
    return "" if result.accuracy is None else units.with_spread(result.accuracy, result.accuracy_std)


def _time_in_words(result: Result) -> str:
    found = result.time_to_accuracy
    if found is None:
        return ""
    return "not reached" if found.seconds is None else units.seconds(found.seconds)


ACCURACY = Metric(
    name="accuracy",
    title="test accuracy",
    unit="",
    better="higher",
    value=lambda result: result.accuracy,
    in_words=_in_words,
    needs="needs `--accuracy`",
)

TIME_TO_ACCURACY = Metric(
    name="time_to_accuracy",
    title="time to accuracy",
    unit="s",
    better="lower",
    value=lambda result: result.time_to_accuracy.seconds if result.time_to_accuracy else None,
    in_words=_time_in_words,
    needs="needs `--until accuracy=0.60`",
)
