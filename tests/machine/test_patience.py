"""Waiting for a quiet machine: a clock that is played, and one program that is real."""

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

from polybench.machine.noise import Load, MachineReading
from polybench.machine.patience import Patience, in_words
from polybench.machine.programs import Program, ProgramMeter


class Machine:
    """Plays a machine on which somebody is busy for the first `busy` seconds."""

    def __init__(self, busy: float) -> None:
        self.now, self._busy = 0.0, busy

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> MachineReading:
        return MachineReading(self.now, min(self.now, self._busy), 0.0, 0, 0.0, None)


class Programs:
    def busiest(self) -> list[Program]:
        return [Program("firefox", 0.95)]


def patience(seconds: float, machine: Machine, said: list[str]) -> Patience:
    return Patience(seconds, said.append, sleep=machine.sleep, read=machine.read, programs=Programs)  # type: ignore[arg-type]


def test_it_goes_on_as_soon_as_the_machine_is_quiet() -> None:
    said: list[str] = []
    machine = Machine(busy=2.0)
    waiting = patience(30.0, machine, said)
    assert waiting.wait_until_quiet()
    assert (machine.now, waiting.waited) == (2.5, 2.5)
    assert said[0] == "waiting for a quiet machine: firefox takes 95% of a core"


def test_patience_ends_and_is_one_for_the_whole_study() -> None:
    machine = Machine(busy=100.0)
    waiting = patience(3.0, machine, [])
    assert not waiting.wait_until_quiet()
    assert not waiting.wait_until_quiet()
    assert waiting.waited == machine.now == 3.0


def test_without_patience_it_only_looks_who_disturbs_once() -> None:
    machine = Machine(busy=100.0)
    waiting = patience(0.0, machine, [])
    assert not waiting.wait_until_quiet()
    assert machine.now == 0.0
    waiting.disturbed()
    waiting.disturbed()
    assert machine.now == 0.5
    assert [program.name for program in waiting.busiest] == ["firefox"]


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (Load(2.0, 0.0, 0.5, 0, None), "the hypervisor takes 25% of a core"),
        (Load(2.0, 1.0, 0.0, 0, None), "something that cannot be seen from here takes 50% of a core"),
    ],
)
def test_who_has_no_name_is_named_all_the_same(load: Load, text: str) -> None:
    assert in_words(load, []) == text


FOREVER = ["-c", "while :; do :; done"]


def shell(folder: Path, name: str) -> str:
    return shutil.copy("/bin/sh", folder / name)


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[None]:
    """A busy program that is not ours: its parent is gone."""
    start = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid)"
    command = [sys.executable, "-W", "ignore", "-c", start, shell(tmp_path, "busybody"), *FOREVER]
    pid = int(subprocess.check_output(command))
    yield
    os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("orphan")
def test_the_busiest_program_is_found_and_ours_are_not(tmp_path: Path) -> None:
    with subprocess.Popen([shell(tmp_path, "ourselves"), *FOREVER]) as ours:
        meter = ProgramMeter()
        time.sleep(0.6)
        names = [program.name for program in meter.busiest(most=100)]
        ours.kill()
    assert "busybody" in names
    assert "ourselves" not in names
