"""Step time with an input pipeline: waiting and computing, and the throughput of each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.result import Pipeline


def _metric(
    name: str,
    title: str,
    unit: str,
    better: Literal["lower", "higher"],
    value: Callable[[Pipeline], float | None],
    format_value: Callable[[Any], str],
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better=better,
        value=lambda result: value(result.pipeline) if result.pipeline else None,
        format_value=format_value,
        unavailable_hint="needs `--input pipeline`",
    )


DATA_WAIT_TIME = _metric(
    "data_wait_time",
    "waiting for data",
    "s",
    "lower",
    lambda p: p.data_wait_seconds_per_step,
    units.format_seconds,
)
COMPUTE_TIME = _metric(
    "compute_time", "compute", "s", "lower", lambda p: p.compute_seconds_per_step, units.format_seconds
)
PIPELINE_THROUGHPUT = _metric(
    "pipeline_throughput",
    "pipeline alone, images per s",
    "images/s",
    "higher",
    lambda p: p.pipeline_items_per_second,
    units.format_count,
)
TRAINING_THROUGHPUT = _metric(
    "training_throughput",
    "training alone, images per s",
    "images/s",
    "higher",
    lambda p: p.training_items_per_second,
    units.format_count,
)

PIPELINE = (DATA_WAIT_TIME, COMPUTE_TIME, PIPELINE_THROUGHPUT, TRAINING_THROUGHPUT)
