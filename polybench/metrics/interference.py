"""Counters of the kernel during timed blocks: page faults, context switches and waiting for a core."""

from __future__ import annotations

from collections.abc import Callable

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.resources import Interference


def _counter(
    name: str,
    title: str,
    unit: str,
    value: Callable[[Interference], float | None],
    format_value: Callable[[float], str],
    description: str,
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better="lower",
        value=lambda result: value(result.interference),
        format_value=format_value,
        description=description,
    )


def _switches(disturbance: Interference) -> float | None:
    own, forced = disturbance.voluntary_switches_per_step, disturbance.involuntary_switches_per_step
    return None if own is None or forced is None else own + forced


INTERFERENCE = (
    _counter(
        "page_faults",
        "page faults per step",
        "",
        lambda disturbance: disturbance.minor_faults_per_step,
        units.format_number,
        "pages that the kernel mapped, for example after the C library had returned memory to it",
    ),
    _counter(
        "context_switches",
        "context switches per step",
        "",
        _switches,
        units.format_number,
        "voluntary and involuntary, all threads",
    ),
    _counter(
        "cpu_wait_time",
        "CPU wait per step",
        "s",
        lambda disturbance: disturbance.cpu_wait_seconds_per_step,
        units.format_seconds,
        "time in which threads were ready to run but had no core, summed over threads",
    ),
)
