"""A pipeline and its training, each alone: what is asked of the engine, and what of it counts."""

from __future__ import annotations

import pytest

from polybench.engines.fake.engine import FakeEngine
from polybench.worker.separately import pipeline_seconds, training_seconds


class Recorder(FakeEngine):
    """Blocks of 10 steps take 1, 30, 2 and 3 seconds a step: the second is disturbed."""

    sample_kind = "block"

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._seconds = iter((10.0, 300.0, 20.0, 30.0))

    def reset(self) -> None:
        self.calls.append("reset")

    def run_steps(self, first: int, n: int) -> float:
        self.calls.append(f"run {first}+{n}")
        return next(self._seconds) if n == 10 else 0.1

    def draw_batches(self, first: int, n: int) -> float:
        self.calls.append(f"draw {first}+{n}")
        return next(self._seconds) if n == 10 else 0.1


def test_a_pipeline_is_started_untimed_and_nothing_is_trained() -> None:
    engine = Recorder()
    assert pipeline_seconds(engine, 10) == pytest.approx(2.0)  # the median of 1, 30 and 2
    assert engine.calls == ["draw 0+2", "draw 2+10"] * 3


def test_training_is_measured_as_blocks_are_after_one_to_warm_up() -> None:
    engine = Recorder()
    assert training_seconds(engine, 10) == pytest.approx(3.0)  # of 30, 2 and 3; the first is warm-up
    assert engine.calls == ["reset", "run 0+1", "run 1+1", "run 2+10"] * 4
