"""Re-measurement of timing blocks, and the measurement that counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from polybench.machine.interference import InterferenceMeter
from polybench.machine.load import IdleWait
from polybench.protocol import calls
from polybench.protocol.calls import BlockMeasured, Request
from polybench.runner.process_runs import BlockResult, BlockRunner
from polybench.schema.resources import BlockCounters

SECONDS = 1.0


def counters(waited: float) -> BlockCounters:
    return BlockCounters(
        SECONDS,
        2.0,
        other_process_cpu_seconds=waited,
        steal_seconds=0.0,
        cpu_wait_seconds=waited,
        affected=waited > 0,
    )


class Worker:
    """A worker whose n-th block takes n seconds per step."""

    pid = 1

    def __init__(self) -> None:
        self.requests = 0

    def request(self, request: Request[BlockMeasured], timeout: float) -> BlockMeasured:
        self.requests += 1
        return BlockMeasured([float(self.requests)] * request.arguments.steps, 1, 0, None, None)


def measure(monkeypatch: pytest.MonkeyPatch, *waited: float, budget: float) -> tuple[BlockResult, Worker, float]:
    """Return the result, the worker, and the remaining seconds for re-measuring."""
    all_counters: Iterator[BlockCounters] = map(counters, waited)

    class Meter:
        def stop(self) -> BlockCounters:
            return next(all_counters)

    monkeypatch.setattr(InterferenceMeter, "start", lambda *_: Meter())
    worker: Any = Worker()
    runner = BlockRunner(None, IdleWait(0.0, print, sleep=lambda _: None), timeout=1.0)
    runner.rerun_budget_seconds = budget
    return runner.run(worker, calls.measure_block(2), "cpu", ()), worker, runner.rerun_budget_seconds


def test_a_block_without_interference_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, left = measure(monkeypatch, 0.0, budget=10.0)
    assert (worker.requests, result.counters.reruns, left) == (1, 0, 10.0)


def test_a_block_is_remeasured_until_it_has_no_interference(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, left = measure(monkeypatch, 0.5, 0.4, 0.0, budget=10.0)
    assert (worker.requests, result.counters.reruns, left) == (3, 2, 10.0 - 2 * SECONDS)
    assert (result.measured.step_times, result.counters.affected) == ([3.0, 3.0], False)


def test_the_measurement_with_least_interference_counts_even_if_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, _ = measure(monkeypatch, 0.5, 0.6, 0.2, 0.3, budget=10.0)
    assert (worker.requests, result.counters.reruns) == (4, 3)
    assert (result.measured.step_times, result.counters.affected) == ([3.0, 3.0], True)


def test_a_block_is_not_remeasured_without_remaining_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, _ = measure(monkeypatch, 0.5, 0.4, budget=1.5)
    assert (worker.requests, result.counters.reruns, result.counters.affected) == (2, 1, True)
    _, worker, _ = measure(monkeypatch, 0.5, budget=0.5)
    assert worker.requests == 1
