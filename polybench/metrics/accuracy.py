"""Accuracy on the test set after whole trainings, and the time to reach it."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.result import Result


def _format_accuracy(result: Result) -> str:
    return "" if result.accuracy is None else units.format_with_std(result.accuracy, result.accuracy_std)


def _format_time(result: Result) -> str:
    found = result.time_to_accuracy
    if found is None:
        return ""
    return "not reached" if found.seconds is None else units.format_seconds(found.seconds)


ACCURACY = Metric(
    name="accuracy",
    title="test accuracy",
    unit="",
    better="higher",
    value=lambda result: result.accuracy,
    format_result=_format_accuracy,
    unavailable_hint="needs `--accuracy`",
)

TIME_TO_ACCURACY = Metric(
    name="time_to_accuracy",
    title="time to accuracy",
    unit="s",
    better="lower",
    value=lambda result: result.time_to_accuracy.seconds if result.time_to_accuracy else None,
    format_result=_format_time,
    unavailable_hint="needs `--target-accuracy`",
)
