"""CPU time of a process."""

from __future__ import annotations

import psutil


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
    return sum(map(_own_and_ended, family))


def _own_and_ended(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
