"""Programs other than polybench that keep the machine busy, by name."""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil

_MIN_CORES = 0.05
"""Programs that use less than this fraction of a core are left out."""

_MAX_PROGRAMS = 3


class BusyProcess(NamedTuple):
    """All processes of one name; `cores` is their total CPU time per second."""

    name: str
    cores: float


class BusyProcessMeter:
    """Reads the CPU time of every process when it is created, and again in `busiest`."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._before = _cpu_seconds()

    def busiest(self, limit: int = _MAX_PROGRAMS) -> list[BusyProcess]:
        """Return the programs that used most CPU time since the meter was created, busiest first."""
        seconds = max(time.monotonic() - self._start, 1e-3)
        seconds_by_name: dict[str, float] = {}
        for process, (name, now) in _cpu_seconds().items():
            _, before = self._before.get(process, (name, now))
            seconds_by_name[name] = seconds_by_name.get(name, 0.0) + now - before
        programs = [BusyProcess(name, used / seconds) for name, used in seconds_by_name.items()]
        notable = [program for program in programs if program.cores >= _MIN_CORES]
        return sorted(notable, key=lambda program: -program.cores)[:limit]


def _cpu_seconds() -> dict[tuple[int, float], tuple[str, float]]:
    """Map each process, by ID and start time since IDs are reused, to its name and its CPU time so far."""
    this_process = psutil.Process()
    own_pids = {this_process.pid, *(child.pid for child in this_process.children(recursive=True))}
    seconds = {}
    for process in psutil.process_iter(["name", "cpu_times", "create_time"]):
        info = process.info
        if process.pid not in own_pids and info["cpu_times"] is not None:
            times = info["cpu_times"]
            seconds[process.pid, info["create_time"]] = info["name"] or "?", times.user + times.system
    return seconds
