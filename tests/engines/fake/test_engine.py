from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import sys
import threading

import numpy as np
import pytest

from polybench.core.errors import Unavailable
from polybench.core.job import EXACT, Job
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.engines.fake.engine import ALLOCATED, COLLECTION_SECONDS, FakeEngine
from polybench.models.lenet import LENET
from tests.engines.conftest import REPOSITORY

WORKLOAD = Workload("lenet", "noise", 8, Optimizer(), "fp32", 1)


def fake(*variants: str) -> FakeEngine:
    engine = FakeEngine()
    engine.load_framework()
    engine.build(Job(LENET, WORKLOAD, "cpu", "float32", variants), {})
    engine.load(np.zeros((1, 8, 3, 32, 32)), np.zeros((1, 8)))
    engine.reset()
    return engine


def test_steps_take_ten_milliseconds_and_slow_ones_twenty() -> None:
    assert statistics.median(fake().run_steps(i, 1) for i in range(50)) == pytest.approx(0.010, rel=0.1)
    assert statistics.median(fake("slow").run_steps(i, 1) for i in range(50)) == pytest.approx(0.020, rel=0.1)
    assert fake().run_steps(0, 100) == pytest.approx(1.0, rel=0.1)


def test_the_clock_is_scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = fake(), fake()
    assert [one.run_steps(i, 1) for i in range(9)] == [two.run_steps(i, 1) for i in range(9)]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert fake().run_steps(0, 1) != one.run_steps(0, 1)


def test_losses_fall_and_start_again_after_a_reset() -> None:
    engine = fake()
    losses = []
    for step in range(9):
        engine.run_steps(step, 1)
        losses.append(engine.loss())
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == pytest.approx(math.log(10))
    engine.reset()
    engine.run_steps(0, 1)
    assert engine.loss() == losses[0]


def test_nan_comes_after_a_few_steps() -> None:
    engine = fake("nan")
    engine.run_steps(0, 4)
    assert math.isfinite(engine.loss())
    engine.run_steps(4, 1)
    assert math.isnan(engine.loss())


def test_unavailable_says_so_when_it_is_built() -> None:
    with pytest.raises(Unavailable, match="the fake framework is not installed") as caught:
        fake("unavailable")
    assert caught.value.remedy == "ask for plain fake"


def test_garbage_is_written_to_the_answers_when_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv("POLYBENCH_ANSWERS_FD", str(writer))
    engine = fake("garbage")
    for step in range(5):
        engine.run_steps(step, 1)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"this is no message\n"


def test_hang_waits_when_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    monkeypatch.setattr(threading.Event, "wait", lambda event: waits.append(1))
    engine = fake("hang")
    for step in range(4):
        engine.run_steps(step, 1)
    assert not waits
    engine.run_steps(4, 1)
    assert len(waits) == 1


def test_crash_kills_the_process_when_it_is_measured() -> None:
    script = (
        "from tests.engines.fake.test_engine import fake\n"
        "engine = fake('crash')\n"
        "for step in range(5): print(engine.run_steps(step, 1) > 0, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "True\n" * 4


def test_it_has_nothing_to_show_for_parity() -> None:
    engine = fake()
    assert engine.conventions() == EXACT
    assert engine.probe().devices == ("cpu",)
    with pytest.raises(NotImplementedError, match="no arithmetic"):
        engine.snapshot(0)
    engine.close()


def test_counts_what_its_script_says() -> None:
    engine = fake()
    engine.reset()
    before = engine.collected()
    assert engine.count_allocations(0, 10).host == ALLOCATED
    spent = engine.collected() - before
    assert spent.seconds == pytest.approx(10 * COLLECTION_SECONDS)
    assert spent.full_sweeps == 1
