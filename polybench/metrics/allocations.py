"""What a training step allocates, as far as each engine's own source can see.

The sources differ (`allocations.host.source` and `covers` in the result, a footnote in the table): numbers of
different engines stand side by side and are never divided by one another.
"""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.resources import Allocation
from polybench.core.document.result import Result
from polybench.metrics.base import Metric


def _host(result: Result) -> Allocation | None:
    return result.allocations.host


def _device(result: Result) -> Allocation | None:
    return result.allocations.device


ALLOCATED = Metric(
    name="allocated",
    title="alloc. per step",
    unit="B",
    better="lower",
    value=lambda result: host.bytes_per_step if (host := _host(result)) else None,
    show=units.nbytes,
)

ALLOCATIONS = Metric(
    name="allocations",
    title="allocs per step",
    unit="",
    better="lower",
    value=lambda result: host.count_per_step if (host := _host(result)) else None,
    show=units.number,
)

DEVICE_ALLOCATED = Metric(
    name="device_allocated",
    title="device alloc. per step",
    unit="B",
    better="lower",
    value=lambda result: device.bytes_per_step if (device := _device(result)) else None,
    show=units.nbytes,
)

DEVICE_ALLOCATIONS = Metric(
    name="device_allocations",
    title="device allocs per step",
    unit="",
    better="lower",
    value=lambda result: device.count_per_step if (device := _device(result)) else None,
    show=units.number,
)

GC_TIME = Metric(
    name="gc_time",
    title="gc per step",
    unit="s",
    better="lower",
    value=lambda result: result.gc.seconds_per_step,
    show=units.seconds,
)

FULL_SWEEPS = Metric(
    name="full_sweeps",
    title="full sweeps",
    unit="",
    better="lower",
    value=lambda result: result.gc.full_sweeps,
    show=units.count,
)
