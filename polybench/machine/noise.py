"""What else the machine does while a round is measured, read at its two ends only."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import NamedTuple

import psutil

from polybench.core.document.circumstances import RoundNoise
from polybench.machine.meters.cpu import cpu_seconds

_OTHER_CPU_PERCENT = 10.0
"""Of one core, by processes that are not workers. An idle desktop stays below 5."""

_STEAL_PERCENT = 5.0

_JUDGED_SECONDS = 0.1
"""The kernel counts in ticks of 10 ms: percentages of less than ten ticks mean nothing."""


class _Reading(NamedTuple):
    at: float
    busy: float
    steal: float
    swapped: int
    workers: float


def _read(pids: Collection[int]) -> _Reading:
    cpu = psutil.cpu_times()
    # Guest time is part of user time on Linux; steal is time that the hypervisor gave to others.
    steal = getattr(cpu, "steal", 0.0)
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    busy = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0) - idle - steal
    swap = psutil.swap_memory()
    # Of a worker that failed meanwhile nothing is left but its share in what ended children took.
    ended = os.times()
    workers = sum(map(cpu_seconds, pids)) + ended.children_user + ended.children_system
    return _Reading(time.monotonic(), busy, steal, swap.sin + swap.sout, workers)


class NoiseMeter:
    """Reads at the start and at the end of a round."""

    def __init__(self, pids: Collection[int]) -> None:
        self._pids = pids
        self._start = _read(pids)

    def stop(self, process: int, number: int) -> RoundNoise:
        """What happened since the meter was made; `process` and `number` count from 0."""
        start, end = self._start, _read(self._pids)
        wall = max(end.at - start.at, 1e-3)
        other = max(0.0, (end.busy - start.busy) - (end.workers - start.workers))
        other_percent = 100 * other / wall
        steal_percent = 100 * (end.steal - start.steal) / wall
        swapped = end.swapped - start.swapped
        return RoundNoise(
            process=process,
            round=number,
            load=os.getloadavg()[0],
            other_cpu_percent=round(other_percent, 1),
            steal_percent=round(steal_percent, 1),
            swapped_bytes=swapped,
            affected=wall >= _JUDGED_SECONDS
            and (other_percent > _OTHER_CPU_PERCENT or steal_percent > _STEAL_PERCENT or swapped > 0),
        )
