"""What a training step of JAX allocates: what XLA plans for it, and on a GPU what its allocator counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.core.document.resources import Allocation, Allocations, DeviceAllocation

SOURCE = "XLA's Compiled.memory_analysis()"
COVERS = (
    "planned before the first step: what the compiled step holds at its fullest, and results that replace"
    " nothing; neither how many blocks, nor what XLA's libraries take by themselves"
)


def allocations(train: Callable[[], object], steps: int, compiled: Any, device: Any) -> Allocations:
    """Train and count.

    Args:
        train: trains `steps` steps, all done when it returns.
        steps: by which the count is divided.
        compiled: the step as `jax.jit(...).lower(...).compile()` gives it.
        device: a jax.Device; the second record is that of a GPU.
    """
    plan = compiled.memory_analysis()
    planned = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    before = _requests(device)
    train()
    after = _requests(device)
    if before is None or after is None:
        return Allocations(Allocation(None, float(planned), SOURCE, COVERS), None)
    counted = DeviceAllocation((after - before) / steps, float(planned), f"{SOURCE}, memory_stats()", COVERS)
    return Allocations(None, counted)


def _requests(device: Any) -> int | None:
    """How often the device's allocator was asked so far; None on the CPU, where nothing counts it."""
    stats = device.memory_stats()
    return stats["num_allocs"] if stats else None
