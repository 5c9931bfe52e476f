"""Load of the machine between two readings."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from polybench.machine import load
from polybench.machine.load import (
    BusyProcess,
    BusyProcessMeter,
    IdleWait,
    MachineCounters,
    MachineLoad,
    RoundMeter,
    describe,
    read_counters,
)
from polybench.machine.process_counters import cpu_seconds
from tests.processes import becomes_true


def reading(seconds: float, **changes: float) -> MachineCounters:
    start = MachineCounters(seconds, 0.0, 0.0, 0, 0.0, 0.0)
    return start._replace(**changes)  # type: ignore[arg-type]


def meter(monkeypatch: pytest.MonkeyPatch, *readings: MachineCounters) -> RoundMeter:
    monkeypatch.setattr(load, "read_counters", lambda left=list(readings): left.pop(0))
    return RoundMeter()


def test_load_of_the_workers_is_not_interference(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = meter(monkeypatch, reading(0.0), reading(10.0, busy_seconds=20.0, own_cpu_seconds=20.0)).stop(1, 2)
    assert (quiet.process, quiet.round, quiet.other_cpu_percent, quiet.affected) == (1, 2, 0.0, False)


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"busy_seconds": 0.9}, False),
        ({"busy_seconds": 1.1}, True),
        ({"steal_seconds": 0.4}, False),
        ({"steal_seconds": 0.6}, True),
        ({"swapped_bytes": 4096}, True),
        ({"own_cpu_seconds": 5.0}, False),
    ],
)
def test_busy_rounds_are_affected(change: dict[str, float], affected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meter(monkeypatch, reading(0.0), reading(10.0, **change)).stop(0, 0).affected is affected


def test_threads_of_the_kernel_are_not_other_programs() -> None:
    start = reading(0.0)._replace(kernel_threads={3: 1.0, 4: 50.0})
    end = reading(10.0, busy_seconds=6.0)._replace(kernel_threads={3: 3.0, 5: 2.5})  # one ended, one started
    assert end.load_since(start).other_cpu_seconds == pytest.approx(6.0 - 2.0 - 2.5)


def test_cpu_time_of_a_worker_that_ended_still_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        alive = read_counters()
        worker.kill()
    # The kernel counts in ticks of 10 ms.
    assert read_counters().own_cpu_seconds >= alive.own_cpu_seconds - 0.02


@pytest.mark.parametrize("change", [{"busy_seconds": 0.05}, {"steal_seconds": 0.05}, {"swapped_bytes": 4096}])
def test_round_of_a_few_ticks_is_never_affected(change: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not meter(monkeypatch, reading(0.0), reading(0.05, **change)).stop(0, 0).affected


class CpuTimes(NamedTuple):
    """The fields of psutil; the time of guests is also in that of their hosts."""

    user: float = 1.0
    nice: float = 2.0
    system: float = 4.0
    idle: float = 8.0
    iowait: float = 16.0
    irq: float = 32.0
    softirq: float = 64.0
    steal: float = 128.0
    guest: float = 0.5
    guest_nice: float = 0.25


def test_the_kernel_counts_guests_within_the_time_of_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load.psutil, "cpu_times", CpuTimes)
    found = read_counters()
    assert (found.busy_seconds, found.steal_seconds) == (1.0 + 2.0 + 4.0 + 32.0 + 64.0, 128.0)


def test_pressure_is_the_time_in_which_some_task_had_no_core(tmp_path: Path) -> None:
    later, earlier = reading(1.0, cpu_pressure_seconds=0.75), reading(0.0, cpu_pressure_seconds=0.25)
    assert later.load_since(earlier).cpu_pressure_seconds == 0.5
    file = tmp_path / "cpu"
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=4219579\nfull avg10=0.00 total=0\n")
    assert load._read_pressure(file) == 4.219579


@pytest.mark.parametrize("text", [None, "", "invalid\n"])
def test_pressure_is_unknown_without_pressure_files(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu"
    if text is not None:
        file.write_text(text)
    assert load._read_pressure(file) is None
    unknown = reading(0.0)._replace(cpu_pressure_seconds=None)
    assert reading(1.0).load_since(unknown).cpu_pressure_seconds is None


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
    assert messages == ["waiting for an idle machine: firefox uses 95% of a core"]


def test_a_wait_is_reported_again_when_other_programs_are_busy() -> None:
    messages: list[str] = []
    busy = iter(["firefox"] * 2 + ["make"] * 9)
    with patch.object(Programs, "busiest", lambda _: [BusyProcess(next(busy), 0.5)]):
        assert simulated_wait(30.0, Machine(busy=2.0), messages).wait_until_idle()
    assert [text.split()[5] for text in messages] == ["firefox", "make"]


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


def names(meter: BusyProcessMeter) -> list[str]:
    return [program.name for program in meter.busiest(limit=100)]


@pytest.mark.usefixtures("orphan")
def test_busiest_program_is_found_but_not_polybenchs_own(tmp_path: Path) -> None:
    with subprocess.Popen([shell(tmp_path, "own_program"), *FOREVER]) as own:
        meter = BusyProcessMeter()
        assert becomes_true(lambda: cpu_seconds(own.pid) > 0.2 and "other_program" in names(meter))
        assert "own_program" not in names(meter)
        own.kill()
