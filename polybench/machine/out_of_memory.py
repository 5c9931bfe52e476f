"""Whether the kernel has ended processes for want of memory: the machine's, or a control group's."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = Path("/proc/vmstat")


def kills(file: Path = _COUNTERS) -> int | None:
    """How many processes the kernel has ended for that since it started; None where it does not say."""
    try:
        counters = dict(line.split() for line in file.read_text().splitlines())
        return int(counters["oom_kill"])
    except (OSError, KeyError, ValueError):
        return None
