"""What training steps of Flux allocate, as Julia and CUDA.jl count it; what nobody sees from outside."""

from __future__ import annotations

from collections.abc import Iterable

from polybench.core.document.places import Place, Places
from polybench.core.document.resources import Allocation, Allocations, DeviceAllocation

HOST_COVERS = "Julia's heap, on all threads; not what BLAS or a GPU allocates"
DEVICE_COVERS = (
    "arrays and workspaces that CUDA.jl asked its pool for, which keeps freed memory; "
    "not what cuBLAS, cuDNN and the driver take for themselves"
)
NATIVELY_UNSEEN = (
    "Julia's objects below 2 KiB, from pools that ask for 64 MiB at a time, nor what compiled Julia code asks"
    " malloc for by itself"
)


def allocations(
    host: tuple[int, int], device: tuple[int, int] | None, held: int | None, n: int
) -> Allocations:
    """Means of a step.

    Args:
        host: count and bytes of `n` steps together.
        device: the same on a GPU, if there is one.
        held: bytes of the GPU that CUDA.jl's pool holds.
        n: how many steps.
    """
    return Allocations(
        host=Allocation(*_means(host, n), "Base.gc_num()", HOST_COVERS),
        device=DeviceAllocation(*_means(device, n), "CUDA.jl's pool", DEVICE_COVERS, reserved_bytes=held)
        if device
        else None,
    )


def places(found: Iterable[tuple[str, int, int]], n: int) -> Places:
    """Means of a step; `found` are function, bytes and count of `n` steps together."""
    made = [Place(str(name), int(size) / n, int(count) / n) for name, size, count in found]
    return Places(
        "Julia's Profile.Allocs",
        f"{HOST_COVERS}; by the innermost function of a package. The garbage collector frees it, at any time",
        sorted(made, key=lambda place: -place.bytes_per_step),
    )


def _means(total: tuple[int, int], n: int) -> tuple[float, float]:
    count, size = total
    return count / n, size / n
