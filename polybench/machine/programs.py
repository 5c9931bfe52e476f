"""Which programs keep the machine busy: everybody's but polybench's own, by name."""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil

_NOTABLE = 0.05
"""Of one core: less than this does not keep a machine busy."""

_MOST = 3


class Program(NamedTuple):
    """`cores` is what all processes of this name together took."""

    name: str
    cores: float


class ProgramMeter:
    """Looks at every process when it is made, and again at `busiest`."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._before = _cpu_seconds()

    def busiest(self, most: int = _MOST) -> list[Program]:
        """The few that took most since this was made, the busiest first; empty where none took much."""
        seconds = max(time.monotonic() - self._at, 1e-3)
        taken: dict[str, float] = {}
        for process, (name, now) in _cpu_seconds().items():
            _, before = self._before.get(process, (name, now))
            taken[name] = taken.get(name, 0.0) + now - before
        programs = [Program(name, used / seconds) for name, used in taken.items()]
        notable = [program for program in programs if program.cores >= _NOTABLE]
        return sorted(notable, key=lambda program: -program.cores)[:most]


def _cpu_seconds() -> dict[tuple[int, float], tuple[str, float]]:
    """Process, by id and start, since ids come again -> its name and the time that it took so far."""
    me = psutil.Process()
    ours = {me.pid, *(child.pid for child in me.children(recursive=True))}
    found = {}
    for process in psutil.process_iter(["name", "cpu_times", "create_time"]):
        info = process.info
        if process.pid not in ours and info["cpu_times"] is not None:
            times = info["cpu_times"]
            found[process.pid, info["create_time"]] = info["name"] or "?", times.user + times.system
    return found
