"""What else the machine did: counted from readings at two moments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from polybench.machine import noise
from polybench.machine.noise import MachineReading, NoiseMeter, read_machine


def reading(at: float, **changes: float) -> MachineReading:
    values = {"busy": 0.0, "steal": 0.0, "swapped": 0, "ours": 0.0, "pressure": 0.0} | changes
    return MachineReading(at=at, **values)  # type: ignore[arg-type]


def meter(monkeypatch: pytest.MonkeyPatch, *readings: MachineReading) -> NoiseMeter:
    monkeypatch.setattr(noise, "read_machine", lambda left=list(readings): left.pop(0))
    return NoiseMeter()


def test_what_the_workers_did_is_not_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = meter(monkeypatch, reading(0.0), reading(10.0, busy=20.0, ours=20.0)).stop(1, 2)
    assert (quiet.process, quiet.round, quiet.other_cpu_percent, quiet.affected) == (1, 2, 0.0, False)


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"busy": 0.9}, False),
        ({"busy": 1.1}, True),
        ({"steal": 0.4}, False),
        ({"steal": 0.6}, True),
        ({"swapped": 4096}, True),
        ({"ours": 5.0}, False),
    ],
)
def test_disturbed_rounds(change: dict[str, float], affected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meter(monkeypatch, reading(0.0), reading(10.0, **change)).stop(0, 0).affected is affected


def test_a_worker_that_ends_takes_nothing_of_what_it_did_along() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        alive = read_machine()
        worker.kill()
    # The kernel counts in ticks of 10 ms.
    assert read_machine().ours >= alive.ours - 0.02


def test_a_round_of_a_few_ticks_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not meter(monkeypatch, reading(0.0), reading(0.05, busy=0.05)).stop(0, 0).affected


def test_pressure_is_the_time_that_some_task_had_no_core(tmp_path: Path) -> None:
    assert reading(1.0, pressure=0.75).since(reading(0.0, pressure=0.25)).pressure == 0.5
    file = tmp_path / "cpu"
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=4219579\nfull avg10=0.00 total=0\n")
    assert noise._pressure(file) == 4.219579


@pytest.mark.parametrize("text", [None, "", "nothing of the kind\n"])
def test_a_kernel_without_pressure_files_says_nothing(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu"
    if text is not None:
        file.write_text(text)
    assert noise._pressure(file) is None
    unknown = reading(0.0)._replace(pressure=None)
    assert reading(1.0).since(unknown).pressure is None
