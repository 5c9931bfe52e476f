"""What training steps ask of the C library and the kernel, counted by memray, whatever the engine.

memray stands between every loaded library and malloc, its kin and mmap, on all threads. What it notes takes
several times as long as the allocation, so nothing is timed in a process that had it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from polybench.core.document.resources import NativeAllocation, SizeClasses
from polybench.core.errors import Unavailable
from polybench.core.spec import UNTIMED_STEPS
from polybench.engines.base import Engine
from polybench.worker.counted import start

SOURCE = "memray"
COVERS = "what the process asks of the C library (malloc and its kin) and of mmap, on all threads"
REMEDY = "pip install 'polybench[memray]'"

SMALL_BELOW = 1 << 10
MEDIUM_TO = 256 << 10


class Record(Protocol):
    """What memray notes of an allocation, or of an end of one."""

    @property
    def allocator(self) -> int:
        """A `memray.AllocatorType`."""
        ...

    @property
    def size(self) -> int:
        """Bytes that were asked for."""
        ...


def count_native(engine: Engine, steps: int) -> NativeAllocation:
    """The same steps as `measure_block` times.

    An empty pass notes nothing (`tests/worker/test_native.py`), so nothing is subtracted.

    Args:
        engine: built, loaded and warm.
        steps: how many to count.

    Raises:
        Unavailable: memray is not installed.
    """
    try:
        import memray
    except ImportError as error:
        raise Unavailable(f"memray does not load: {error}", REMEDY) from error
    start(engine)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "allocations"
        with memray.Tracker(file):
            engine.run_steps(UNTIMED_STEPS, steps)
        with memray.FileReader(file) as reader:
            counts, total = _added_up(reader.get_allocation_records())
            # Of an allocation that is freed again in parts (munmap), the parts that are left.
            peak = sum(part.size for part in reader.get_high_watermark_allocation_records(merge_threads=True))
    unseen = engine.unseen_natively()
    return NativeAllocation(
        count_per_step=counts.total() / steps,
        bytes_per_step=total / steps,
        live_peak_bytes=peak,
        by_size=SizeClasses(**{name: counts[name] / steps for name in SizeClasses.__struct_fields__}),
        source=SOURCE,
        covers=f"{COVERS}; not {unseen}" if unseen else COVERS,
    )


def _added_up(records: Iterable[Record]) -> tuple[Counter[str], int]:
    """How many allocations of each size class there are, and the bytes of all; one record at a time."""
    from memray import AllocatorType

    ends = {AllocatorType.FREE, AllocatorType.MUNMAP}
    counts: Counter[str] = Counter()
    total = 0
    for record in records:
        if record.allocator not in ends:
            counts[size_class(record.size)] += 1
            total += record.size
    return counts, total


def size_class(size: int) -> str:
    """The field of `SizeClasses` for an allocation of so many bytes."""
    if size < SMALL_BELOW:
        return "small"
    return "medium" if size <= MEDIUM_TO else "large"
