"""Kernel counters of a process: CPU time, page faults, context switches, time spent waiting for a core."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_FAULT_FIELDS = (7, 9)
"""Indices of minor and major faults in /proc/PID/stat, after the name in brackets, which may contain
anything."""

_CALIBRATION_BYTES = 32 << 20


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its children so far; 0 if the process is gone.

    The kernel adds a child's time to its parent only when the child ends, but the children of an input
    pipeline keep running.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0.0
    seconds = 0.0
    for member in family:
        with contextlib.suppress(psutil.Error):
            times = member.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def kernel_threads(proc: Path = _PROC) -> dict[int, float]:
    """Map the process ID of each thread of the kernel to its CPU time so far; empty inside of a container.

    These are the children of process 2, kthreadd. What they do, such as writing to disk, is often work for polybench.
    """
    seconds = {}
    for process in proc.iterdir():
        with contextlib.suppress(OSError):  # not a process, or it ended meanwhile
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if process.name.isdigit() and fields[1] == "2":
                seconds[int(process.name)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return seconds


class ThreadCounts(NamedTuple):
    """Counts of one thread: voluntary and involuntary context switches, and seconds ready but not running."""

    voluntary: int
    involuntary: int
    cpu_wait_seconds: float | None


class KernelCounts(NamedTuple):
    """Counts of a process so far."""

    minor_faults: int
    major_faults: int
    threads: dict[int, ThreadCounts]

    def delta(self, earlier: KernelCounts) -> KernelDelta:
        """Return the changes since an earlier reading; counts of threads that ended in between are lost."""
        none = ThreadCounts(0, 0, 0.0)
        pairs = [(earlier.threads.get(thread, none), now) for thread, now in self.threads.items()]
        waits = [
            None if now.cpu_wait_seconds is None else now.cpu_wait_seconds - (was.cpu_wait_seconds or 0.0)
            for was, now in pairs
        ]
        return KernelDelta(
            self.minor_faults - earlier.minor_faults,
            self.major_faults - earlier.major_faults,
            sum(now.voluntary - was.voluntary for was, now in pairs),
            sum(now.involuntary - was.involuntary for was, now in pairs),
            None if None in waits else sum(delay for delay in waits if delay is not None),
        )


class KernelDelta(NamedTuple):
    """Changes of a process's counts, summed over threads; `cpu_wait_seconds` is None without schedstat."""

    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    cpu_wait_seconds: float | None


def kernel_counts(pid: int, proc: Path = _PROC) -> KernelCounts | None:
    """Return the counts of a process now; None if it is gone."""
    process = proc / str(pid)
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        minor, major = (int(fields[index]) for index in _FAULT_FIELDS)
        return KernelCounts(minor, major, dict(_threads(process)))
    except OSError:
        return None


def _threads(process: Path) -> Iterator[tuple[int, ThreadCounts]]:
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines() if "ctxt" in line)
            voluntary, involuntary = (int(status.get(f"{kind}voluntary_ctxt_switches", 0)) for kind in ("", "non"))
            yield int(task.name), ThreadCounts(voluntary, involuntary, _cpu_wait_seconds(task))


def _cpu_wait_seconds(task: Path) -> float | None:
    """Parse the second number of schedstat: nanoseconds on a run queue."""
    try:
        return int((task / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


@functools.cache
def seconds_per_fault() -> float:
    """Measure the cost of a minor page fault: the kernel finds a page, clears it and maps it.

    Uses fresh memory of this process; takes about 10 ms, once.
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
