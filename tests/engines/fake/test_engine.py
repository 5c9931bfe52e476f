from __future__ import annotations

import math
import os
import statistics

import numpy as np
import pytest

from polybench.engines.fake.engine import ALLOCATIONS, GC_SECONDS, FakeEngine
from polybench.engines.job import Job
from polybench.networks.lenet import LENET
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import Workload

WORKLOAD = Workload("lenet", "noise", 8, Optimizer(), "fp32", 1)


def fake(*variants: str) -> FakeEngine:
    engine = FakeEngine()
    engine.build(Job(LENET, WORKLOAD, "cpu", "float32", variants), {})
    engine.load(np.zeros((1, 8, 3, 32, 32)), np.zeros((1, 8)))
    engine.reset()
    return engine


def test_steps_take_ten_milliseconds_and_slow_steps_twenty() -> None:
    assert statistics.median(fake().run_steps(i, 1) for i in range(50)) == pytest.approx(0.010, rel=0.1)
    assert statistics.median(fake("slow").run_steps(i, 1) for i in range(50)) == pytest.approx(0.020, rel=0.1)
    assert fake().run_steps(0, 100) == pytest.approx(1.0, rel=0.1)


def test_step_times_depend_on_the_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = fake(), fake()
    assert [one.run_steps(i, 1) for i in range(9)] == [two.run_steps(i, 1) for i in range(9)]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert fake().run_steps(0, 1) != one.run_steps(0, 1)


def test_losses_decrease_and_restart_after_a_reset() -> None:
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


def test_allocation_and_gc_counts_are_the_simulated_ones() -> None:
    engine = fake()
    engine.reset()
    before = engine.gc_stats()
    assert engine.count_allocations(0, 10).host == ALLOCATIONS
    gc = engine.gc_stats() - before
    assert gc.seconds == pytest.approx(10 * GC_SECONDS)
    assert gc.full_collections == 1
