"""Processes that the kernel killed because the machine or a control group was out of memory."""

from __future__ import annotations

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


def kill_count(file: Path = _VMSTAT) -> int | None:
    """Return the number of processes killed since boot; None if the kernel does not report it."""
    try:
        counters = dict(line.split() for line in file.read_text().splitlines())
        return int(counters["oom_kill"])
    except (OSError, KeyError, ValueError):
        return None
