"""Waiting for a quiet machine: before anything is timed, and after a disturbance."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from polybench.core import interrupts, units
from polybench.machine.noise import Load, MachineReading, read_machine
from polybench.machine.programs import Program, ProgramMeter

_WINDOW = 0.5
"""Seconds of one look: fifty of the kernel's ticks."""


class Patience:
    """Waits at most so many seconds in all, while nothing of ours runs.

    Args:
        seconds: of patience; with 0 nothing is waited for, and one look finds out who disturbs.
        say: told what is waited for.

    Attributes:
        waited: seconds so far.
        busiest: the programs that were seen to keep the machine busy, the last ones seen.
    """

    def __init__(
        self,
        seconds: float,
        say: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        read: Callable[[], MachineReading] = read_machine,
        programs: Callable[[], ProgramMeter] = ProgramMeter,
    ) -> None:
        self.waited = 0.0
        self.busiest: list[Program] = []
        self._left, self._say = seconds, say
        self._sleep, self._read, self._programs = sleep, read, programs

    def wait_until_quiet(self) -> bool:
        """Return as soon as one look finds the machine quiet: True; or when patience ends: False."""
        while self._left > 0:
            load = self._look()
            if not load.busy:
                return True
            self._say(f"waiting for a quiet machine: {in_words(load, self.busiest)}")
        return False

    def disturbed(self) -> None:
        """Somebody was: wait, or at least find out once who it is."""
        if self._left > 0:
            self.wait_until_quiet()
        elif not self.busiest:
            self._look()

    def _look(self) -> Load:
        start, programs = self._read(), self._programs()
        with interrupts.waiting():
            self._sleep(_WINDOW)
        load = self._read().since(start)
        self.busiest = programs.busiest() or self.busiest
        self.waited += load.seconds
        self._left -= load.seconds
        return load


def in_words(load: Load, busiest: Sequence[Program]) -> str:
    """Who takes what: "firefox takes 95 % of a core"."""
    takers = [(program.name, program.cores) for program in busiest]
    if load.stolen:
        takers.append(("the hypervisor", load.steal / load.seconds))
    if not takers:
        takers.append(("something that cannot be seen from here", load.others / load.seconds))
    return ", ".join(f"{name} takes {units.percent(cores)} of a core" for name, cores in takers)
