"""How fast it trains in the units of its users: images and steps a second, time of an epoch."""

from __future__ import annotations

from polybench.core import units
from polybench.metrics.base import Metric

THROUGHPUT = Metric(
    name="throughput",
    title="images per s",
    unit="images/s",
    better="higher",
    value=lambda result: result.samples_per_second,
    show=units.count,
)

STEPS_PER_SECOND = Metric(
    name="steps_per_second",
    title="steps per s",
    unit="steps/s",
    better="higher",
    value=lambda result: 1 / result.typical_seconds if result.measured else None,
    show=units.count,
)

EPOCH_TIME = Metric(
    name="epoch_time",
    title="epoch time",
    unit="s",
    better="lower",
    value=lambda result: result.epoch_seconds,
    show=units.seconds,
)
