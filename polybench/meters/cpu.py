"""CPU time of a process."""

from __future__ import annotations

import psutil


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children so far, 0 if it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
