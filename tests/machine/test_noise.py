"""What else the machine did: counted from readings at two moments."""

from __future__ import annotations

import subprocess
import sys

import pytest

from polybench.machine import noise
from polybench.machine.noise import NoiseMeter


def reading(at: float, **changes: float) -> noise._Reading:
    values = {"busy": 0.0, "steal": 0.0, "swapped": 0, "workers": 0.0} | changes
    return noise._Reading(at=at, **values)  # type: ignore[arg-type]


def meter(monkeypatch: pytest.MonkeyPatch, *readings: noise._Reading) -> NoiseMeter:
    monkeypatch.setattr(noise, "_read", lambda _, left=list(readings): left.pop(0))
    return NoiseMeter([])


def test_what_the_workers_did_is_not_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = meter(monkeypatch, reading(0.0), reading(10.0, busy=20.0, workers=20.0)).stop(1, 2)
    assert (quiet.process, quiet.round, quiet.other_cpu_percent, quiet.affected) == (1, 2, 0.0, False)


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"busy": 0.9}, False),
        ({"busy": 1.1}, True),
        ({"steal": 0.4}, False),
        ({"steal": 0.6}, True),
        ({"swapped": 4096}, True),
        ({"workers": 5.0}, False),
    ],
)
def test_disturbed_rounds(change: dict[str, float], affected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meter(monkeypatch, reading(0.0), reading(10.0, **change)).stop(0, 0).affected is affected


def test_a_worker_that_ends_takes_nothing_of_what_it_did_along() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        alive = noise._read([worker.pid])
        worker.kill()
    # The kernel counts in ticks of 10 ms.
    assert noise._read([worker.pid]).workers >= alive.workers - 0.02


def test_a_round_of_a_few_ticks_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not meter(monkeypatch, reading(0.0), reading(0.05, busy=0.05)).stop(0, 0).affected
