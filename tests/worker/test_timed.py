"""The timed loop: the order of its phases, what is timed, and what fails."""

from __future__ import annotations

import math
import time

import pytest

from polybench.core.errors import CellFailed
from polybench.engines.fake.engine import FakeEngine
from polybench.worker.timed import measure_block


class Recorder(FakeEngine):
    """Writes down what is asked of it, with a clock that counts 1 second a step."""

    def __init__(self, kind: str = "step", loss: float = 1.0) -> None:
        super().__init__()
        self.sample_kind = kind  # type: ignore[assignment]
        self.calls: list[str] = []
        self._value = loss

    def reset(self) -> None:
        self.calls.append("reset")

    def run_steps(self, first: int, n: int) -> float:
        self.calls.append(f"run {first}+{n}")
        return float(n)

    def loss(self) -> float:
        self.calls.append("loss")
        return self._value


def test_a_block_resets_takes_two_untimed_steps_then_times_each() -> None:
    engine = Recorder()
    assert measure_block(engine, 3).step_seconds == [1.0, 1.0, 1.0]
    assert engine.calls == ["reset", "run 0+1", "run 1+1", "run 2+1", "run 3+1", "run 4+1", "loss"]


def test_every_block_times_the_same_steps() -> None:
    engine = Recorder()
    measure_block(engine, 3)
    first, engine.calls = engine.calls, []
    measure_block(engine, 3)
    assert engine.calls == first


def test_steps_that_can_only_be_timed_together_give_their_mean() -> None:
    engine = Recorder("block")
    assert measure_block(engine, 10).step_seconds == [1.0]
    assert engine.calls[-2:] == ["run 2+10", "loss"]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_fails(loss: float) -> None:
    with pytest.raises(CellFailed, match=r"the loss is .* after 5 steps"):
        measure_block(Recorder(loss=loss), 3)


def test_a_handicap_is_really_waited_and_added() -> None:
    class Quick(Recorder):
        def run_steps(self, first: int, n: int) -> float:
            return 0.01

    for seconds in measure_block(Quick(), 4, handicap=0.5).step_seconds:
        assert seconds >= 0.015


def test_a_call_is_what_it_takes_beside_what_the_engine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class BehindABridge(Recorder):
        def run_steps(self, first: int, n: int) -> float:
            nonlocal now
            now += 0.005
            return 0.002

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    block = measure_block(BehindABridge(), 3)
    assert block.step_seconds == [0.002] * 3
    assert block.call_seconds == pytest.approx(0.003)


def test_a_clock_that_is_not_the_machines_says_nothing_of_a_call() -> None:
    assert measure_block(Recorder(), 3).call_seconds is None


def test_waiting_is_that_of_the_timed_steps() -> None:
    class Waiting(Recorder):
        def waited(self) -> float:
            return 0.25 * sum(call.startswith("run") for call in self.calls)

    assert measure_block(Waiting(), 3).waited_seconds == pytest.approx(0.75)
    assert measure_block(Recorder(), 3).waited_seconds is None
