"""Memory and allocations of training steps, measured in passes without timing."""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polybench.engines.base import Engine
from polybench.errors import EngineUnavailable, install_command
from polybench.machine.memory import read_rss, reset_peak
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.resources import Allocations, Memory, NativeAllocation, SizeClasses

SOURCE = "memray"
COVERAGE = "requests to the C library (malloc and related functions) and to mmap, on all threads"
HINT = install_command("memray")
_KIB = 1 << 10


def measure_memory_and_allocations(engine: Engine, steps: int) -> tuple[Memory, Allocations]:
    """Run the steps of `measure_block` twice: once for memory, once for allocations, since counting takes memory.

    The peak of the memory includes the process's life before this call.
    """
    reset_and_warm_up(engine)
    peak = read_rss().peak
    can_reset = reset_peak()
    before = read_rss()
    engine.run_steps(WARMUP_STEPS_PER_BLOCK, steps)
    after = read_rss()
    memory = Memory(
        peak_rss_bytes=max(peak, after.peak),
        rss_anon_bytes=after.anonymous,
        rss_file_bytes=after.file_mapped,
        step_peak_increase_bytes=max(0, after.peak - before.total) if can_reset else None,
        device_peak_bytes=engine.device_peak_bytes(),
    )
    reset_and_warm_up(engine)
    return memory, engine.count_allocations(WARMUP_STEPS_PER_BLOCK, steps)


def reset_and_warm_up(engine: Engine) -> None:
    """Reset the engine and run the untimed steps, as `measure_block` does before its timed steps."""
    engine.reset()
    gc.collect()
    for step in range(WARMUP_STEPS_PER_BLOCK):
        engine.run_steps(step, 1)


def count_native_allocations(engine: Engine, steps: int) -> NativeAllocation:
    """Count the native allocations of the steps that `measure_block` times, with memray, for every engine.

    memray intercepts malloc and related functions, and mmap, of every loaded library on all threads. Recording takes
    several times as long as the allocation, so a process that used memray must not time anything. An empty pass records
    nothing (`tests/worker/test_allocations.py`), so the counts need no correction.
    """
    try:
        import memray
    except ImportError as error:
        raise EngineUnavailable(f"cannot import memray: {error}", HINT) from error
    untraced = engine.untraced_native_allocations()
    reset_and_warm_up(engine)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "allocations"
        with memray.Tracker(file):
            engine.run_steps(WARMUP_STEPS_PER_BLOCK, steps)
        with memray.FileReader(file) as reader:
            counts, total = _aggregate(reader.get_allocation_records())
            # If munmap frees an allocation in parts, the remaining parts count.
            peak = sum(record.size for record in reader.get_high_watermark_allocation_records(merge_threads=True))
    return NativeAllocation(
        count_per_step=counts.total() / steps,
        bytes_per_step=total / steps,
        peak_live_bytes=peak,
        by_size=SizeClasses(**{name: counts[name] / steps for name in SizeClasses.__struct_fields__}),
        source=SOURCE,
        coverage=f"{COVERAGE}; not {untraced}" if untraced else COVERAGE,
    )


def _aggregate(records: Iterable[Any]) -> tuple[Counter[str], int]:
    """Count the allocations of each size class in memray's records, and sum their bytes, one record at a time."""
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
