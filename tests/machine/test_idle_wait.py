"""Waiting for an idle machine, with a simulated clock, and with one real program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybench.machine.load import BusyProcess, BusyProcessMeter, IdleWait, MachineCounters, MachineLoad, describe


class Machine:
    """Simulates a machine on which another program is busy for the first `busy` seconds."""

    def __init__(self, busy: float) -> None:
        self.now, self._busy = 0.0, busy

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> MachineCounters:
        return MachineCounters(self.now, min(self.now, self._busy), 0.0, 0, 0.0, None)


class Programs:
    def busiest(self) -> list[BusyProcess]:
        return [BusyProcess("firefox", 0.95)]


def simulated_wait(seconds: float, machine: Machine, messages: list[str]) -> IdleWait:
    return IdleWait(seconds, messages.append, sleep=machine.sleep, read=machine.read, programs=Programs)  # type: ignore[arg-type]


def test_wait_ends_as_soon_as_the_machine_is_idle() -> None:
    messages: list[str] = []
    machine = Machine(busy=2.0)
    waiting = simulated_wait(30.0, machine, messages)
    assert waiting.wait_until_idle()
    assert (machine.now, waiting.waited_seconds) == (2.5, 2.5)
    assert messages[0] == "waiting for an idle machine: firefox uses 95% of a core"


def test_maximum_wait_applies_to_the_whole_study() -> None:
    machine = Machine(busy=100.0)
    waiting = simulated_wait(3.0, machine, [])
    assert not waiting.wait_until_idle()
    assert not waiting.wait_until_idle()
    assert waiting.waited_seconds == machine.now == 3.0


def test_maximum_of_zero_measures_busy_programs_once() -> None:
    machine = Machine(busy=100.0)
    waiting = simulated_wait(0.0, machine, [])
    assert not waiting.wait_until_idle()
    assert machine.now == 0.0
    waiting.after_interference()
    waiting.after_interference()
    assert machine.now == 0.5
    assert [program.name for program in waiting.busiest_programs] == ["firefox"]


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (MachineLoad(2.0, 0.0, 0.5, 0, None), "the hypervisor uses 25% of a core"),
        (MachineLoad(2.0, 1.0, 0.0, 0, None), "a process that is not visible here uses 50% of a core"),
    ],
)
def test_invisible_load_is_described(load: MachineLoad, text: str) -> None:
    assert describe(load, []) == text


FOREVER = ["-c", "while :; do :; done"]


def shell(folder: Path, name: str) -> str:
    return shutil.copy("/bin/sh", folder / name)


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[None]:
    """Start a busy program that is not a descendant of this process."""
    start = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid)"
    command = [sys.executable, "-W", "ignore", "-c", start, shell(tmp_path, "other_program"), *FOREVER]
    pid = int(subprocess.check_output(command))
    yield
    os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("orphan")
def test_busiest_program_is_found_but_not_polybenchs_own(tmp_path: Path) -> None:
    with subprocess.Popen([shell(tmp_path, "own_program"), *FOREVER]) as own:
        meter = BusyProcessMeter()
        time.sleep(0.6)
        names = [program.name for program in meter.busiest(limit=100)]
        own.kill()
    assert "other_program" in names
    assert "own_program" not in names
