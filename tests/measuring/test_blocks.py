"""When a block is measured again, and which measurement counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from polybench.core.document.resources import BlockReading
from polybench.machine.disturbance import DisturbanceMeter
from polybench.machine.patience import Patience
from polybench.measuring.blocks import BlockResult, Blocks
from polybench.wire.messages import Measure, Measured

SECONDS = 1.0


def reading(waited: float) -> BlockReading:
    return BlockReading(
        SECONDS,
        2.0,
        others_cpu_seconds=waited,
        steal_seconds=0.0,
        run_delay_seconds=waited,
        disturbed=waited > 0,
    )


class Worker:
    """Its n-th block takes n seconds a step."""

    pid = 1

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, request: Measure, kind: type, timeout: float) -> Measured:
        self.asked += 1
        return Measured([float(self.asked)] * request.steps, 1, 0, None, None)


def measure(
    monkeypatch: pytest.MonkeyPatch, *waited: float, spare: float
) -> tuple[BlockResult, Worker, float]:
    """The result, the worker that was asked, and the seconds that are left."""
    readings: Iterator[BlockReading] = map(reading, waited)

    class Meter:
        def stop(self) -> BlockReading:
            return next(readings)

    monkeypatch.setattr(DisturbanceMeter, "start", lambda *_: Meter())
    worker: Any = Worker()
    blocks = Blocks(None, Patience(0.0, print, sleep=lambda _: None), timeout=1.0)
    blocks.spare = spare
    return blocks.measure(worker, Measure(2), "cpu", ()), worker, blocks.spare


def test_an_undisturbed_block_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, left = measure(monkeypatch, 0.0, spare=10.0)
    assert (worker.asked, result.reading.repeats, left) == (1, 0, 10.0)


def test_a_disturbed_block_is_measured_again_until_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, left = measure(monkeypatch, 0.5, 0.4, 0.0, spare=10.0)
    assert (worker.asked, result.reading.repeats, left) == (3, 2, 10.0 - 2 * SECONDS)
    assert (result.measured.step_seconds, result.reading.disturbed) == ([3.0, 3.0], False)


def test_of_disturbed_ones_the_least_disturbed_counts_however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, _ = measure(monkeypatch, 0.5, 0.6, 0.2, 0.3, spare=10.0)
    assert (worker.asked, result.reading.repeats) == (4, 3)
    assert (result.measured.step_seconds, result.reading.disturbed) == ([3.0, 3.0], True)


def test_without_time_to_spare_it_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    result, worker, _ = measure(monkeypatch, 0.5, 0.4, spare=1.5)
    assert (worker.asked, result.reading.repeats, result.reading.disturbed) == (2, 1, True)
    _, worker, _ = measure(monkeypatch, 0.5, spare=0.5)
    assert worker.asked == 1
