"""Allocations of Flux's training steps, as Julia and CUDA.jl count them, and what native counting misses."""

from __future__ import annotations

from collections.abc import Iterable

from polybench.schema.measurements import AllocationProfile, AllocationSite
from polybench.schema.resources import Allocation, Allocations, DeviceAllocation

HOST_COVERAGE = "Julia's heap, on all threads; not what BLAS or a GPU allocates"
DEVICE_COVERAGE = (
    "arrays and workspaces requested from CUDA.jl's pool, which retains freed memory; "
    "not the memory that cuBLAS, cuDNN and the driver allocate themselves"
)
NATIVE_COVERAGE_GAPS = (
    "Julia's objects below 2 KiB, whose pools allocate 64 MiB at a time, nor direct malloc calls of compiled Julia code"
)


def allocations(host: tuple[int, int], device: tuple[int, int] | None, pool_bytes: int | None, n: int) -> Allocations:
    """Return means per step.

    Args:
        host: total count and bytes of `n` steps.
        device: the same on a GPU, or None.
        pool_bytes: GPU memory of CUDA.jl's pool.
        n: number of steps.
    """
    return Allocations(
        host=Allocation(*_means(host, n), "Base.gc_num()", HOST_COVERAGE),
        device=DeviceAllocation(*_means(device, n), "CUDA.jl's pool", DEVICE_COVERAGE, reserved_bytes=pool_bytes)
        if device
        else None,
    )


def allocation_profile(found: Iterable[tuple[str, int, int]], n: int) -> AllocationProfile:
    """Return means per step; `found` has (function, bytes, count) totals of `n` steps."""
    made = [AllocationSite(str(name), int(size) / n, int(count) / n) for name, size, count in found]
    return AllocationProfile(
        "Julia's Profile.Allocs",
        f"{HOST_COVERAGE}; by the innermost function of a package; the garbage collector frees it at any time",
        sorted(made, key=lambda site: -site.bytes_per_step),
    )


def _means(total: tuple[int, int], n: int) -> tuple[float, float]:
    count, size = total
    return count / n, size / n
