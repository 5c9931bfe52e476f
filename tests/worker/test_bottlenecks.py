"""Separate times of the pipeline and of training: engine calls, and the blocks that count."""

from __future__ import annotations

import pytest

from polybench.worker.bottlenecks import pipeline_seconds, training_seconds
from tests.worker.recorder import Recorder


class Disturbed(Recorder):
    """Blocks of 10 steps take 1, 30, 2 and 3 s per step: the second has interference."""

    def __init__(self) -> None:
        super().__init__("block")
        self._seconds = iter((10.0, 300.0, 20.0, 30.0))

    def run_steps(self, first: int, n: int) -> float:
        super().run_steps(first, n)
        return next(self._seconds) if n == 10 else 0.1

    def drain_pipeline(self, first: int, n: int) -> float:
        super().drain_pipeline(first, n)
        return next(self._seconds) if n == 10 else 0.1


def test_the_pipeline_starts_untimed_and_no_step_trains() -> None:
    engine = Disturbed()
    assert pipeline_seconds(engine, 10) == pytest.approx(2.0)  # the median of 1, 30 and 2
    assert engine.calls == ["drain 0+2", "drain 2+10"] * 3


def test_training_is_measured_in_timing_blocks_after_a_warm_up_block() -> None:
    engine = Disturbed()
    assert training_seconds(engine, 10) == pytest.approx(3.0)  # the median of 30, 2 and 3; the first block is warm-up
    assert engine.calls == ["reset", "run 0+1", "run 1+1", "run 2+10"] * 4
