"""Load of the machine by other programs over a round, a timing block or a wait, and waiting for an idle machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import psutil

from polybench.machine import cgroups, interrupts
from polybench.machine.process_counters import cpu_seconds, kernel_threads
from polybench.schema import units
from polybench.schema.metadata import RoundInterference

MAX_OTHER_CPU = 0.10
"""Fraction of one core that processes other than polybench's may use. An idle desktop stays below 0.05."""

MAX_STEAL = 0.05
"""Fraction of one core that the hypervisor may give to other machines."""

_MIN_SECONDS = 0.1
"""The kernel counts in ticks of 10 ms: fractions of an interval shorter than ten ticks are meaningless."""

_PRESSURE = Path("/proc/pressure/cpu")

_MIN_CORES = 0.05
"""Programs that use less than this fraction of a core are left out."""

_MAX_PROGRAMS = 3

_WINDOW_SECONDS = 0.5
"""Duration of one measurement of the load, in seconds: fifty of the kernel's ticks."""


class MachineLoad(NamedTuple):
    """Load of the machine between two readings.

    `other_cpu_seconds` leaves out the kernel's own threads. `cpu_pressure_seconds` is the time in which some task of
    the machine was ready but had no core (https://docs.kernel.org/accounting/psi.html), `throttled_seconds` that in
    which a CPU quota stopped polybench. They are None if the kernel does not report them.
    """

    seconds: float
    other_cpu_seconds: float
    steal_seconds: float
    swapped_bytes: int
    cpu_pressure_seconds: float | None
    throttled_seconds: float | None = None

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
    """Counters of the machine at one moment; `own_cpu_seconds` is of this process and its descendants.

    `kernel_threads` maps the process ID of each thread of the kernel to its CPU time.
    """

    seconds: float
    busy_seconds: float
    steal_seconds: float
    swapped_bytes: int
    own_cpu_seconds: float
    cpu_pressure_seconds: float | None
    kernel_threads: Mapping[int, float] = MappingProxyType({})
    throttled_seconds: float | None = None

    def load_since(self, earlier: MachineCounters) -> MachineLoad:
        """Return the load between an earlier reading and this one."""
        busy_seconds = self.busy_seconds - earlier.busy_seconds
        own_seconds = self.own_cpu_seconds - earlier.own_cpu_seconds
        kernel_seconds = sum(now - earlier.kernel_threads.get(pid, 0.0) for pid, now in self.kernel_threads.items())
        return MachineLoad(
            seconds=max(self.seconds - earlier.seconds, 1e-3),
            other_cpu_seconds=max(0.0, busy_seconds - own_seconds - kernel_seconds),
            steal_seconds=self.steal_seconds - earlier.steal_seconds,
            swapped_bytes=self.swapped_bytes - earlier.swapped_bytes,
            cpu_pressure_seconds=_change(earlier.cpu_pressure_seconds, self.cpu_pressure_seconds),
            throttled_seconds=_change(earlier.throttled_seconds, self.throttled_seconds),
        )


def _change(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def read_counters() -> MachineCounters:
    """Read the counters now. Takes milliseconds, so call it around a measurement, never within one."""
    cpu = psutil.cpu_times()
    # Linux includes guest time in user time; steal is time that the hypervisor gave to other machines.
    steal = getattr(cpu, "steal", 0.0)
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    busy = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0) - idle - steal
    swap = psutil.swap_memory()
    return MachineCounters(
        time.monotonic(),
        busy,
        steal,
        swap.sin + swap.sout,
        cpu_seconds(os.getpid()),
        _read_pressure(),
        kernel_threads(),
        cgroups.throttled_seconds(),
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

    @property
    def seconds(self) -> float:
        """Seconds since the meter was created."""
        return time.monotonic() - self._start.seconds

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


class IdleWait:
    """Waits for other programs to stop, up to a total number of seconds; no worker runs meanwhile.

    0 seconds never wait, but measure once which programs are busy. `report` is called with the reason for a wait.
    `waited_seconds` is the total wait so far, without measurements that find the machine idle at once, and
    `measured_seconds` is that with them.
    `busiest_programs` kept the machine busy in the last measurement that found any.
    """

    def __init__(
        self,
        seconds: float,
        report: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        read: Callable[[], MachineCounters] = read_counters,
        programs: Callable[[], BusyProcessMeter] = BusyProcessMeter,
    ) -> None:
        self.waited_seconds = self.measured_seconds = 0.0
        self.busiest_programs: list[BusyProcess] = []
        self._has_looked = False
        self._remaining_seconds, self._report = seconds, report
        self._sleep, self._read_counters, self._make_process_meter = sleep, read, programs

    def wait_until_idle(self) -> bool:
        """Return True as soon as the machine is idle, or False if the maximum wait is over.

        A wait is reported once, and again when other programs keep the machine busy.
        """
        reported: list[str] | None = None
        while self._remaining_seconds > 0:
            load = self._measure_load()
            if not load.is_busy and reported is None:
                return True
            self.waited_seconds += load.seconds
            self._remaining_seconds -= load.seconds
            if not load.is_busy:
                return True
            if (names := [one.name for one in self.busiest_programs]) != reported:
                self._report(f"waiting for an idle machine: {describe(load, self.busiest_programs)}")
            reported = names
        return False

    def after_interference(self) -> None:
        """Wait for an idle machine, or at least measure once which programs interfere."""
        if self._remaining_seconds > 0:
            self.wait_until_idle()
        elif not self.busiest_programs and not self._has_looked:
            self._has_looked = True
            self._measure_load()

    def _measure_load(self) -> MachineLoad:
        start, programs = self._read_counters(), self._make_process_meter()
        with interrupts.interruptible():
            self._sleep(_WINDOW_SECONDS)
        load = self._read_counters().load_since(start)
        self.busiest_programs = programs.busiest() or self.busiest_programs
        self.measured_seconds += load.seconds
        return load


def describe(load: MachineLoad, busiest: Sequence[BusyProcess]) -> str:
    """Describe who uses the CPU: "firefox uses 95 % of a core"."""
    shares = [(program.name, program.cores) for program in busiest]
    if load.has_steal:
        shares.append(("the hypervisor", load.steal_seconds / load.seconds))
    if not shares:
        shares.append(("a process that is not visible here", load.other_cpu_seconds / load.seconds))
    return ", ".join(f"{name} uses {units.format_percent(cores)} of a core" for name, cores in shares)
