"""What else the machine does: read at the two ends of a round, of a block, of a moment of waiting."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from polybench.core.document.circumstances import RoundNoise
from polybench.machine.meters.cpu import cpu_seconds

OTHERS = 0.10
"""Of one core, by processes that are not polybench's. An idle desktop stays below 0.05."""

STEAL = 0.05
"""Of one core, that the hypervisor gave to others."""

_JUDGED_SECONDS = 0.1
"""The kernel counts in ticks of 10 ms: shares of less than ten ticks mean nothing."""

_PRESSURE = Path("/proc/pressure/cpu")


class Load(NamedTuple):
    """What the machine did between two readings; `others`, `steal` and `pressure` are seconds.

    `pressure` is how long some task, anybody's, was ready and had no core; None where the kernel does not
    say (https://docs.kernel.org/accounting/psi.html).
    """

    seconds: float
    others: float
    steal: float
    swapped_bytes: int
    pressure: float | None

    @property
    def judged(self) -> bool:
        """Whether it was long enough to say anything."""
        return self.seconds >= _JUDGED_SECONDS

    @property
    def stolen(self) -> bool:
        """Whether the hypervisor gave a notable share to others."""
        return self.judged and self.steal > STEAL * self.seconds

    @property
    def busy(self) -> bool:
        """Whether others, of this machine or beside it, took more than an idle machine's share."""
        return self.stolen or (self.judged and self.others > OTHERS * self.seconds)


class MachineReading(NamedTuple):
    """The counters of the machine at one moment; `ours` is the time of this process and all it started."""

    at: float
    busy: float
    steal: float
    swapped: int
    ours: float
    pressure: float | None

    def since(self, earlier: MachineReading) -> Load:
        """What happened in between."""
        both = self.pressure is not None and earlier.pressure is not None
        return Load(
            seconds=max(self.at - earlier.at, 1e-3),
            others=max(0.0, (self.busy - earlier.busy) - (self.ours - earlier.ours)),
            steal=self.steal - earlier.steal,
            swapped_bytes=self.swapped - earlier.swapped,
            pressure=(self.pressure or 0.0) - (earlier.pressure or 0.0) if both else None,
        )


def read_machine() -> MachineReading:
    """Now. Takes milliseconds, and memory of nobody: for the ends of what is measured, never within it."""
    cpu = psutil.cpu_times()
    # Guest time is part of user time on Linux; steal is time that the hypervisor gave to others.
    steal = getattr(cpu, "steal", 0.0)
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    busy = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0) - idle - steal
    swap = psutil.swap_memory()
    return MachineReading(
        time.monotonic(), busy, steal, swap.sin + swap.sout, cpu_seconds(os.getpid()), _pressure()
    )


def _pressure(file: Path = _PRESSURE) -> float | None:
    """Its first line ends with microseconds: "some avg10=0.00 avg60=0.00 avg300=0.00 total=4219579"."""
    try:
        return int(file.read_text().splitlines()[0].rpartition("total=")[2]) / 1e6
    except (OSError, IndexError, ValueError):
        return None


class NoiseMeter:
    """Reads at the start and at the end of a round."""

    def __init__(self) -> None:
        self._start = read_machine()

    def stop(self, process: int, number: int) -> RoundNoise:
        """What happened since the meter was made; `process` and `number` count from 0."""
        load = read_machine().since(self._start)
        return RoundNoise(
            process=process,
            round=number,
            load=os.getloadavg()[0],
            other_cpu_percent=round(100 * load.others / load.seconds, 1),
            steal_percent=round(100 * load.steal / load.seconds, 1),
            swapped_bytes=load.swapped_bytes,
            affected=load.busy or (load.judged and load.swapped_bytes > 0),
        )
