"""Waiting for an idle machine: before measuring, and after interference."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from polybench.machine import interrupts
from polybench.machine.busy_processes import BusyProcess, BusyProcessMeter
from polybench.machine.machine_load import MachineCounters, MachineLoad, read_counters
from polybench.schema import units

_WINDOW_SECONDS = 0.5
"""Duration of one measurement of the load, in seconds: fifty of the kernel's ticks."""


class IdleWait:
    """Waits for other programs to stop, up to a total number of seconds; no worker runs meanwhile.

    Args:
        seconds: maximum total wait; 0 never waits, but measures once which programs are busy.
        report: called with the reason for the wait.

    Attributes:
        waited_seconds: total wait so far.
        busiest_programs: the programs that kept the machine busy in the last measurement that found any.
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
        self.waited_seconds = 0.0
        self.busiest_programs: list[BusyProcess] = []
        self._remaining_seconds, self._report = seconds, report
        self._sleep, self._read_counters, self._make_process_meter = sleep, read, programs

    def wait_until_idle(self) -> bool:
        """Return True as soon as the machine is idle, or False if the maximum wait is over."""
        while self._remaining_seconds > 0:
            load = self._measure_load()
            if not load.is_busy:
                return True
            self._report(f"waiting for an idle machine: {describe(load, self.busiest_programs)}")
        return False

    def after_interference(self) -> None:
        """Wait for an idle machine, or at least measure once which programs interfere."""
        if self._remaining_seconds > 0:
            self.wait_until_idle()
        elif not self.busiest_programs:
            self._measure_load()

    def _measure_load(self) -> MachineLoad:
        start, programs = self._read_counters(), self._make_process_meter()
        with interrupts.interruptible():
            self._sleep(_WINDOW_SECONDS)
        load = self._read_counters().load_since(start)
        self.busiest_programs = programs.busiest() or self.busiest_programs
        self.waited_seconds += load.seconds
        self._remaining_seconds -= load.seconds
        return load


def describe(load: MachineLoad, busiest: Sequence[BusyProcess]) -> str:
    """Describe who uses the CPU: "firefox uses 95 % of a core"."""
    shares = [(program.name, program.cores) for program in busiest]
    if load.has_steal:
        shares.append(("the hypervisor", load.steal_seconds / load.seconds))
    if not shares:
        shares.append(("a process that is not visible here", load.other_cpu_seconds / load.seconds))
    return ", ".join(f"{name} uses {units.format_percent(cores)} of a core" for name, cores in shares)
