"""Where the time of a step goes with an input pipeline, and how fast its two parts are alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from polybench.core import units
from polybench.core.document.times import Pipeline
from polybench.metrics.base import Metric


def _part(
    name: str,
    title: str,
    unit: str,
    better: Literal["lower", "higher"],
    of: Callable[[Pipeline], float | None],
    show: Callable[[Any], str],
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better=better,
        value=lambda result: of(result.pipeline) if result.pipeline else None,
        show=show,
        needs="needs `--input pipeline`",
    )


WAITING_TIME = _part(
    "waiting_time", "waiting for data", "s", "lower", lambda p: p.waiting_seconds_per_step, units.seconds
)
COMPUTE_TIME = _part(
    "compute_time", "compute", "s", "lower", lambda p: p.compute_seconds_per_step, units.seconds
)
PIPELINE_THROUGHPUT = _part(
    "pipeline_throughput",
    "pipeline alone, images per s",
    "images/s",
    "higher",
    lambda p: p.pipeline_samples_per_second,
    units.count,
)
TRAINING_THROUGHPUT = _part(
    "training_throughput",
    "training alone, images per s",
    "images/s",
    "higher",
    lambda p: p.training_samples_per_second,
    units.count,
)

PIPELINE = (WAITING_TIME, COMPUTE_TIME, PIPELINE_THROUGHPUT, TRAINING_THROUGHPUT)
