"""Throughput in images and steps per second, and the time of an epoch."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units

THROUGHPUT = Metric(
    name="throughput",
    title="images per s",
    unit="images/s",
    better="higher",
    value=lambda result: result.items_per_second,
    format_value=units.format_count,
)

STEPS_PER_SECOND = Metric(
    name="steps_per_second",
    title="steps per s",
    unit="steps/s",
    better="higher",
    value=lambda result: 1 / result.median_step_seconds if result.is_measured else None,
    format_value=units.format_count,
)

EPOCH_TIME = Metric(
    name="epoch_time",
    title="epoch time",
    unit="s",
    better="lower",
    value=lambda result: result.epoch_seconds,
    format_value=units.format_seconds,
)
