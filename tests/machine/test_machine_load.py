"""Load of the machine between two readings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from polybench.machine import load
from polybench.machine.load import MachineCounters, RoundMeter, read_counters


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


def test_cpu_time_of_a_worker_that_ended_still_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        alive = read_counters()
        worker.kill()
    # The kernel counts in ticks of 10 ms.
    assert read_counters().own_cpu_seconds >= alive.own_cpu_seconds - 0.02


def test_round_of_a_few_ticks_is_never_affected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not meter(monkeypatch, reading(0.0), reading(0.05, busy_seconds=0.05)).stop(0, 0).affected


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
