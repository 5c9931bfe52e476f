"""Load of the machine by other programs, measured over a round, a timing block or a wait."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from polybench.machine.meters.cpu import cpu_seconds
from polybench.schema.metadata import RoundInterference

MAX_OTHER_CPU = 0.10
"""Fraction of one core that processes other than polybench's may use. An idle desktop stays below 0.05."""

MAX_STEAL = 0.05
"""Fraction of one core that the hypervisor may give to other machines."""

_MIN_SECONDS = 0.1
"""The kernel counts in ticks of 10 ms: fractions of an interval shorter than ten ticks are meaningless."""

_PRESSURE = Path("/proc/pressure/cpu")


class MachineLoad(NamedTuple):
    """Load of the machine between two readings.

    `cpu_pressure_seconds` is the time in which some task of the machine was ready but had no core. It is None
    if the kernel does not report it (https://docs.kernel.org/accounting/psi.html).
    """

    seconds: float
    other_cpu_seconds: float
    steal_seconds: float
    swapped_bytes: int
    cpu_pressure_seconds: float | None

    @property
    def is_long_enough(self) -> bool:
        """True if the interval is long enough for a decision."""
        return self.seconds >= _MIN_SECONDS

    @property
    def has_steal(self) -> bool:
        """True if the hypervisor gave a significant fraction of the time to other machines."""
        return self.is_long_enough and self.steal_seconds > MAX_STEAL * self.seconds

    @property
    def is_busy(self) -> bool:
        """True if other programs or machines used more CPU time than on an idle machine."""
        return self.has_steal or (self.is_long_enough and self.other_cpu_seconds > MAX_OTHER_CPU * self.seconds)


class MachineCounters(NamedTuple):
    """Counters of the machine at one moment; `own_cpu_seconds` is of this process and its descendants."""

    seconds: float
    busy_seconds: float
    steal_seconds: float
    swapped_bytes: int
    own_cpu_seconds: float
    cpu_pressure_seconds: float | None

    def load_since(self, earlier: MachineCounters) -> MachineLoad:
        """Return the load between an earlier reading and this one."""
        has_pressure = self.cpu_pressure_seconds is not None and earlier.cpu_pressure_seconds is not None
        return MachineLoad(
            seconds=max(self.seconds - earlier.seconds, 1e-3),
            other_cpu_seconds=max(
                0.0,
                (self.busy_seconds - earlier.busy_seconds) - (self.own_cpu_seconds - earlier.own_cpu_seconds),
            ),
            steal_seconds=self.steal_seconds - earlier.steal_seconds,
            swapped_bytes=self.swapped_bytes - earlier.swapped_bytes,
            cpu_pressure_seconds=(self.cpu_pressure_seconds or 0.0) - (earlier.cpu_pressure_seconds or 0.0)
            if has_pressure
            else None,
        )


def read_counters() -> MachineCounters:
    """Read the counters now. Takes milliseconds, so call it around a measurement, never within one."""
    cpu = psutil.cpu_times()
    # Linux includes guest time in user time; steal is time that the hypervisor gave to other machines.
    steal = getattr(cpu, "steal", 0.0)
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    busy = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0) - idle - steal
    swap = psutil.swap_memory()
    return MachineCounters(
        time.monotonic(), busy, steal, swap.sin + swap.sout, cpu_seconds(os.getpid()), _read_pressure()
    )


def _read_pressure(file: Path = _PRESSURE) -> float | None:
    """Parse the first line's microseconds: "some avg10=0.00 avg60=0.00 avg300=0.00 total=4219579"."""
    try:
        return int(file.read_text().splitlines()[0].rpartition("total=")[2]) / 1e6
    except (OSError, IndexError, ValueError):
        return None


class RoundMeter:
    """Reads the counters at the start and at the end of a round."""

    def __init__(self) -> None:
        self._start = read_counters()

    def stop(self, process: int, round_number: int) -> RoundInterference:
        """Return the load since the meter was created; `process` and `round_number` count from 0."""
        load = read_counters().load_since(self._start)
        return RoundInterference(
            process=process,
            round=round_number,
            load_average=os.getloadavg()[0],
            other_cpu_percent=round(100 * load.other_cpu_seconds / load.seconds, 1),
            steal_percent=round(100 * load.steal_seconds / load.seconds, 1),
            swapped_bytes=load.swapped_bytes,
            affected=load.is_busy or (load.is_long_enough and load.swapped_bytes > 0),
        )
