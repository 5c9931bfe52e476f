"""What a training step allocates: as far as each engine's own source can see, and as the C library was asked.

Engines' own sources differ (`allocations.host.source` and `covers` in the result, a footnote in the table):
their numbers stand side by side and are never divided by one another. Native ones are counted alike in all.
"""

from __future__ import annotations

from collections.abc import Callable

from polybench.core import units
from polybench.core.document.resources import Allocation, NativeAllocation
from polybench.core.document.result import Result
from polybench.metrics.base import Metric

_ON_A_GPU = "needs a cell on CUDA; see `polybench doctor`"
_COLLECTED = "no engine here tells what its garbage collector does"


def _host(result: Result) -> Allocation | None:
    return result.allocations.host


def _device(result: Result) -> Allocation | None:
    return result.allocations.device


def _native(
    name: str,
    title: str,
    unit: str,
    value: Callable[[NativeAllocation], float | None],
    note: str,
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better="lower",
        value=lambda result: value(native) if (native := result.allocations.native) else None,
        show=units.nbytes if unit == "B" else units.number,
        needs="needs memray (`pip install 'polybench[memray]'`), and no `--no-metrics`",
        note=note,
    )


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
    needs=_ON_A_GPU,
)

DEVICE_ALLOCATIONS = Metric(
    name="device_allocations",
    title="device allocs per step",
    unit="",
    better="lower",
    value=lambda result: device.count_per_step if (device := _device(result)) else None,
    show=units.number,
    needs=_ON_A_GPU,
)

NATIVE = (
    _native(
        "native_allocated",
        "native alloc. per step",
        "B",
        lambda native: native.bytes_per_step,
        "asked of the C library and the kernel, counted alike in all engines",
    ),
    _native("native_allocations", "native allocs per step", "", lambda native: native.count_per_step, ""),
    _native(
        "native_ratio",
        "native ratio",
        "",
        lambda native: native.relative_bytes,
        "of native bytes to those of `--baseline`",
    ),
    _native(
        "native_peak",
        "native live peak",
        "B",
        lambda native: native.live_peak_bytes,
        "in use at one time, of what the steps allocated",
    ),
    _native(
        "native_small",
        "small allocs per step",
        "",
        lambda native: native.by_size.small,
        "native, below 1 KiB",
    ),
    _native(
        "native_medium",
        "medium allocs per step",
        "",
        lambda native: native.by_size.medium,
        "native, to 256 KiB",
    ),
    _native(
        "native_large",
        "large allocs per step",
        "",
        lambda native: native.by_size.large,
        "native, above 256 KiB",
    ),
)

GC_TIME = Metric(
    name="gc_time",
    title="gc per step",
    unit="s",
    better="lower",
    value=lambda result: result.gc.seconds_per_step,
    show=units.seconds,
    needs=_COLLECTED,
)

FULL_SWEEPS = Metric(
    name="full_sweeps",
    title="full sweeps",
    unit="",
    better="lower",
    value=lambda result: result.gc.full_sweeps,
    show=units.count,
    needs=_COLLECTED,
)
