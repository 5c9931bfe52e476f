"""Allocations of a training step.

Each engine has its own source of `alloc_bytes_per_step` and `allocs_per_step` (see the result's `source` or the
table's footnote), so these numbers cannot be compared across engines. memray counts native allocations the same
way in every engine.
"""

from __future__ import annotations

from collections.abc import Callable

from polybench.errors import install_command
from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.resources import Allocation, NativeAllocation
from polybench.schema.result import Result

_CUDA_HINT = "needs a CUDA device; see `polybench doctor`"
_GC_HINT = "no engine of this study reports its garbage collector"


def _host(result: Result) -> Allocation | None:
    return result.allocations.host


def _device(result: Result) -> Allocation | None:
    return result.allocations.device


def _native(
    name: str,
    title: str,
    unit: str,
    value: Callable[[NativeAllocation], float | None],
    description: str,
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better="lower",
        value=lambda result: value(native) if (native := result.allocations.native) else None,
        format_value=units.format_bytes if unit == "B" else units.format_number,
        unavailable_hint=f"needs memray (`{install_command('memray')}`) and `--metrics`",
        description=description,
    )


ALLOC_BYTES = Metric(
    name="alloc_bytes_per_step",
    title="alloc bytes per step",
    unit="B",
    better="lower",
    value=lambda result: host.bytes_per_step if (host := _host(result)) else None,
    format_value=units.format_bytes,
)

ALLOC_COUNT = Metric(
    name="allocs_per_step",
    title="allocs per step",
    unit="",
    better="lower",
    value=lambda result: host.count_per_step if (host := _host(result)) else None,
    format_value=units.format_number,
)

DEVICE_ALLOC_BYTES = Metric(
    name="device_alloc_bytes_per_step",
    title="device alloc bytes per step",
    unit="B",
    better="lower",
    value=lambda result: device.bytes_per_step if (device := _device(result)) else None,
    format_value=units.format_bytes,
    unavailable_hint=_CUDA_HINT,
)

DEVICE_ALLOC_COUNT = Metric(
    name="device_allocs_per_step",
    title="device allocs per step",
    unit="",
    better="lower",
    value=lambda result: device.count_per_step if (device := _device(result)) else None,
    format_value=units.format_number,
    unavailable_hint=_CUDA_HINT,
)

NATIVE = (
    _native(
        "native_bytes_per_step",
        "native bytes per step",
        "B",
        lambda native: native.bytes_per_step,
        "requested from the C library and the kernel; counted the same way in every engine",
    ),
    _native("native_allocs_per_step", "native allocs per step", "", lambda native: native.count_per_step, ""),
    _native(
        "native_bytes_vs_baseline",
        "native bytes vs baseline",
        "",
        lambda native: native.ratio_to_baseline,
        "ratio of `native_bytes_per_step` to that of `--baseline`",
    ),
    _native(
        "native_peak_live",
        "native peak live bytes",
        "B",
        lambda native: native.peak_live_bytes,
        "maximum of the bytes that training steps have allocated and not yet freed",
    ),
    _native(
        "native_allocs_lt_1kib",
        "native allocs < 1 KiB per step",
        "",
        lambda native: native.by_size.lt_1kib,
        "native allocations below 1 KiB",
    ),
    _native(
        "native_allocs_1kib_256kib",
        "native allocs 1-256 KiB per step",
        "",
        lambda native: native.by_size.ge_1kib_lt_256kib,
        "native allocations from 1 KiB to below 256 KiB",
    ),
    _native(
        "native_allocs_ge_256kib",
        "native allocs >= 256 KiB per step",
        "",
        lambda native: native.by_size.ge_256kib,
        "native allocations of 256 KiB or more",
    ),
)

GC_TIME = Metric(
    name="gc_time",
    title="GC time per step",
    unit="s",
    better="lower",
    value=lambda result: result.gc.seconds_per_step,
    format_value=units.format_seconds,
    unavailable_hint=_GC_HINT,
)

FULL_GCS = Metric(
    name="full_gcs",
    title="full GCs",
    unit="",
    better="lower",
    value=lambda result: result.gc.full_collections,
    format_value=units.format_count,
    unavailable_hint=_GC_HINT,
)
