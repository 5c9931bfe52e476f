"""Allocations of a JAX training step: XLA's memory plan and, on a GPU, its allocator's counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.schema.resources import Allocation, Allocations, DeviceAllocation

SOURCE = "XLA's Compiled.memory_analysis()"
COVERAGE = (
    "XLA's plan: the compiled step's peak of temporary memory, plus results without a donated buffer; no"
    " counts of blocks, and no allocations of XLA's libraries"
)


def count_allocations(train: Callable[[], object], steps: int, compiled: Any, device: Any) -> Allocations:
    """Train, and count allocations per step.

    Args:
        train: trains `steps` steps and returns when all have finished.
        steps: number of steps.
        compiled: result of `jax.jit(...).lower(...).compile()` for the step.
        device: jax.Device; a GPU's allocations are the second record.
    """
    plan = compiled.memory_analysis()
    planned = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    before = _allocation_count(device)
    train()
    after = _allocation_count(device)
    if before is None or after is None:
        return Allocations(Allocation(None, float(planned), SOURCE, COVERAGE), None)
    counted = DeviceAllocation((after - before) / steps, float(planned), f"{SOURCE}, memory_stats()", COVERAGE)
    return Allocations(None, counted)


def _allocation_count(device: Any) -> int | None:
    """Number of allocations on the device since the process started; None on the CPU."""
    stats = device.memory_stats()
    return stats["num_allocs"] if stats else None
