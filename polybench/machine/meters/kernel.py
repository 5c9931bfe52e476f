"""What the kernel counts of a process: page faults, switches of context, time spent waiting for a core."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_AFTER_NAME = (7, 9)
"""Minor and major faults in /proc/PID/stat, counted after the name in brackets, which may hold anything."""
_CALIBRATION_BYTES = 32 << 20


class ThreadCounts(NamedTuple):
    """Of one thread: switches that it asked for and that it did not, seconds ready but not running."""

    voluntary: int
    involuntary: int
    delay: float | None


class KernelCounts(NamedTuple):
    """Of a process so far; `run_delay_seconds` is None where the kernel does not say (no schedstat)."""

    minor_faults: int
    major_faults: int
    threads: dict[int, ThreadCounts]

    def since(self, earlier: KernelCounts) -> KernelUse:
        """What happened between two readings; a thread that ended in between takes its counts with it."""
        none = ThreadCounts(0, 0, 0.0)
        pairs = [(earlier.threads.get(thread, none), now) for thread, now in self.threads.items()]
        delays = [None if now.delay is None else now.delay - (was.delay or 0.0) for was, now in pairs]
        return KernelUse(
            self.minor_faults - earlier.minor_faults,
            self.major_faults - earlier.major_faults,
            sum(now.voluntary - was.voluntary for was, now in pairs),
            sum(now.involuntary - was.involuntary for was, now in pairs),
            None if None in delays else sum(delay for delay in delays if delay is not None),
        )


class KernelUse(NamedTuple):
    """Of a process during a block, all its threads together."""

    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    run_delay_seconds: float | None


def kernel_counts(pid: int, proc: Path = _PROC) -> KernelCounts | None:
    """The counts of a process now; None if it is gone."""
    process = proc / str(pid)
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        minor, major = (int(fields[at]) for at in _AFTER_NAME)
        return KernelCounts(minor, major, dict(_threads(process)))
    except OSError:
        return None


def _threads(process: Path) -> Iterator[tuple[int, ThreadCounts]]:
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            status = dict(
                line.split(":", 1) for line in (task / "status").read_text().splitlines() if "ctxt" in line
            )
            voluntary, involuntary = (
                int(status.get(f"{kind}voluntary_ctxt_switches", 0)) for kind in ("", "non")
            )
            yield int(task.name), ThreadCounts(voluntary, involuntary, _delay(task))


def _delay(task: Path) -> float | None:
    """Its second number: nanoseconds on a run queue."""
    try:
        return int((task / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def seconds_per_fault() -> float:
    """What a minor fault costs here: the kernel finds a page, clears it and maps it.

    Measured on fresh memory of this process; takes some 10 ms.
    """
    with mmap.mmap(-1, _CALIBRATION_BYTES) as memory:
        pages = range(0, _CALIBRATION_BYTES, mmap.PAGESIZE)
        with contextlib.suppress(AttributeError, OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        start = time.perf_counter()
        for page in pages:
            memory[page] = 1
        fresh = time.perf_counter() - start
        start = time.perf_counter()
        for page in pages:
            memory[page] = 1
        return max(0.0, fresh - (time.perf_counter() - start)) / len(pages)
