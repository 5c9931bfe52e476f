"""Native allocations of training steps, counted by memray for every engine.

memray intercepts malloc and related functions, and mmap, of every loaded library on all threads. Recording
takes several times as long as the allocation, so a process that used memray must not time anything.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from polybench.engines.base import Engine
from polybench.errors import EngineUnavailable, install_command
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.resources import NativeAllocation, SizeClasses
from polybench.worker.count_allocations import reset_and_warm_up

SOURCE = "memray"
COVERAGE = "requests to the C library (malloc and related functions) and to mmap, on all threads"
HINT = install_command("memray")

_KIB = 1 << 10


class AllocationRecord(Protocol):
    """memray's record of an allocation or deallocation."""

    @property
    def allocator(self) -> int:
        """The value of a `memray.AllocatorType`."""
        ...

    @property
    def size(self) -> int:
        """Requested bytes."""
        ...


def count_native_allocations(engine: Engine, steps: int) -> NativeAllocation:
    """Count the native allocations of the steps that `measure_block` times.

    An empty pass records nothing (`tests/worker/test_native_allocations.py`), so the counts need no correction.

    Args:
        engine: built, loaded and warm.
        steps: number of steps.

    Raises:
        EngineUnavailable: memray is not installed.
    """
    try:
        import memray
    except ImportError as error:
        raise EngineUnavailable(f"cannot import memray: {error}", HINT) from error
    reset_and_warm_up(engine)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "allocations"
        with memray.Tracker(file):
            engine.run_steps(WARMUP_STEPS_PER_BLOCK, steps)
        with memray.FileReader(file) as reader:
            counts, total = _aggregate(reader.get_allocation_records())
            # If munmap frees an allocation in parts, the remaining parts count.
            peak = sum(record.size for record in reader.get_high_watermark_allocation_records(merge_threads=True))
    untraced = engine.untraced_native_allocations()
    return NativeAllocation(
        count_per_step=counts.total() / steps,
        bytes_per_step=total / steps,
        peak_live_bytes=peak,
        by_size=SizeClasses(**{name: counts[name] / steps for name in SizeClasses.__struct_fields__}),
        source=SOURCE,
        coverage=f"{COVERAGE}; not {untraced}" if untraced else COVERAGE,
    )


def _aggregate(records: Iterable[AllocationRecord]) -> tuple[Counter[str], int]:
    """Count the allocations of each size class, and sum their bytes, one record at a time."""
    from memray import AllocatorType

    deallocators = {AllocatorType.FREE, AllocatorType.MUNMAP}
    counts: Counter[str] = Counter()
    total = 0
    for record in records:
        if record.allocator not in deallocators:
            counts[size_class(record.size)] += 1
            total += record.size
    return counts, total


def size_class(size: int) -> str:
    """Return the field of `SizeClasses` for an allocation of `size` bytes."""
    if size < _KIB:
        return "lt_1kib"
    return "ge_1kib_lt_256kib" if size < 256 * _KIB else "ge_256kib"
