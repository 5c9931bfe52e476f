"""The timing loop: the order of its calls, its timed steps, and failures."""

from __future__ import annotations

import itertools
import math
import time
from itertools import pairwise

import pytest

from polybench.errors import ConfigurationFailed
from polybench.protocol.calls import Calibrated
from polybench.schema.resources import GcStats, MemoryInUse
from polybench.worker import timing_loop
from polybench.worker.timing_loop import calibrate, measure_block
from tests.worker.recorder import Recorder, uncollected_garbage


def test_a_block_resets_runs_two_untimed_steps_then_times_each_step() -> None:
    engine = Recorder()
    assert measure_block(engine, 3).step_seconds == [1.0, 1.0, 1.0]
    assert engine.calls == ["reset", "run 0+1", "run 1+1", "run 2+1", "run 3+1", "run 4+1"]


def test_garbage_is_collected_before_the_steps() -> None:
    class Checking(Recorder):
        def run_steps(self, first: int, n: int) -> float:
            assert garbage() is None
            return super().run_steps(first, n)

    with uncollected_garbage() as garbage:
        measure_block(Checking(), 3)


def test_steps_that_can_only_be_timed_together_have_one_mean_time() -> None:
    engine = Recorder("block")
    assert measure_block(engine, 10).step_seconds == [1.0]
    assert engine.calls[-1] == "run 2+10"


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_fails(loss: float) -> None:
    engine = Recorder()
    engine.loss = lambda: loss  # type: ignore[method-assign]
    with pytest.raises(ConfigurationFailed, match=r"the loss is .* after 5 steps"):
        measure_block(engine, 3)


def test_an_injected_delay_is_waited_and_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves by one tick at each look, and a step takes 16."""
    tick, engine = 2**-10, Recorder()
    ticks = itertools.count(1)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * tick)
    monkeypatch.setattr(engine, "run_steps", lambda first, n: Recorder.run_steps(engine, first, n) * 16 * tick)
    assert measure_block(engine, 3, injected_delay=0.5).step_seconds == [(16 + 8) * tick] * 3
    assert engine.calls[3:] == ["run 2+1", "run 3+1", "run 4+1"]


def test_an_injected_delay_is_relative_to_the_median_untimed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    tick, ticks, seconds = 2**-10, itertools.count(1), iter([48, 16, 16, 16])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * tick)
    engine = Recorder()
    monkeypatch.setattr(engine, "run_steps", lambda first, n: next(seconds) * tick)
    assert measure_block(engine, 2, injected_delay=0.5).step_seconds == [(16 + 16) * tick] * 2


def test_call_overhead_is_the_time_of_the_call_beyond_the_engines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class WithCallOverhead(Recorder):
        def run_steps(self, first: int, n: int) -> float:
            nonlocal now
            now += 0.005
            return 0.002

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    block = measure_block(WithCallOverhead(), 3)
    assert block.step_seconds == [0.002] * 3
    assert block.call_overhead_seconds == pytest.approx(0.003)


def test_call_overhead_is_that_of_a_typical_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now, overheads = 0.0, iter([0.0, 0.0, 1.0, 3.0, 8.0])

    class Delayed(Recorder):
        def run_steps(self, first: int, n: int) -> float:
            nonlocal now
            now += 2.0 + next(overheads)
            return 2.0

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert measure_block(Delayed(), 3).call_overhead_seconds == 3.0


def test_call_overhead_is_unknown_if_the_engine_simulates_its_clock() -> None:
    assert measure_block(Recorder(), 3).call_overhead_seconds is None


def test_call_overhead_can_be_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Recorder()
    monkeypatch.setattr(time, "perf_counter", lambda: float(len(engine.calls)))
    assert measure_block(engine, 3).call_overhead_seconds == 0


def test_data_wait_includes_only_the_timed_steps() -> None:
    class Waiting(Recorder):
        def data_wait_seconds(self) -> float:
            return 0.25 * sum(call.startswith("run") for call in self.calls)

    assert measure_block(Waiting(), 3).data_wait_seconds == pytest.approx(0.75)
    assert measure_block(Recorder(), 3).data_wait_seconds is None


def test_collections_are_those_of_the_timed_steps() -> None:
    class Collecting(Recorder):
        def gc_stats(self) -> GcStats | None:
            steps = sum(call.startswith("run") for call in self.calls)
            return GcStats(0.5 * steps, steps)

    class CollectingLater(Collecting):
        def gc_stats(self) -> GcStats | None:
            return super().gc_stats() if len(self.calls) > 3 else None

        def data_wait_seconds(self) -> float | None:
            return 1.0 if len(self.calls) > 3 else None

    assert measure_block(Collecting(), 3).gc == GcStats(1.5, 3)
    later = measure_block(CollectingLater(), 3)
    assert (later.gc, later.data_wait_seconds) == (None, None)


def test_the_memory_in_use_is_read_between_the_steps_before_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Recorder()
    monkeypatch.setattr(timing_loop, "bytes_in_use", lambda engine: 100 * len(engine.calls))
    found = calibrate(engine, 12)
    assert engine.calls == ["reset", *(f"run {step}+1" for step in range(14))]
    assert found == Calibrated([1.0] * 12, MemoryInUse([0, 5, 10, 12], [300, 800, 1300, 1500]))


def test_steps_that_are_timed_together_have_one_time_in_a_calibration() -> None:
    engine = Recorder("block")
    assert calibrate(engine, 12).step_seconds == [1.0]
    assert engine.calls[3:] == ["run 2+5", "run 7+5", "run 12+2"]


def test_the_memory_in_use_is_unknown_if_a_source_lacks_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([100, None, 100])
    monkeypatch.setattr(timing_loop, "malloc_bytes_in_use", lambda: next(readings))
    assert calibrate(Recorder(), 10).memory_in_use is None


def test_a_calibration_fails_with_a_loss_that_is_not_finite() -> None:
    engine = Recorder()
    engine.loss = lambda: math.nan  # type: ignore[method-assign]
    with pytest.raises(ConfigurationFailed, match="the loss is nan after 22 steps"):
        calibrate(engine, 20)


def test_garbage_is_not_in_use() -> None:
    collected: list[str] = []

    class Collecting(Recorder):
        def run_gc(self) -> None:
            collected.append("own")

    with uncollected_garbage() as garbage:
        timing_loop.bytes_in_use(Collecting())
        assert garbage() is None
    assert collected == ["own"]


def test_memory_of_the_gpu_and_of_a_heap_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Recorder()
    monkeypatch.setattr(timing_loop, "malloc_bytes_in_use", lambda: 100)
    assert timing_loop.bytes_in_use(engine) == 100
    engine.device_bytes_in_use = lambda: 7  # type: ignore[method-assign]
    assert timing_loop.bytes_in_use(engine) == 107
    engine.heap_bytes_in_use = lambda: 30  # type: ignore[method-assign]
    assert timing_loop.bytes_in_use(engine) == 37


LEAK = 100_000


@pytest.mark.parametrize("kept", [False, True])
def test_what_each_step_retains_is_in_use_after_it(kept: bool) -> None:
    """The state is new after each reset, so that only readings within a block show the growth."""

    class Leaking(Recorder):
        def reset(self) -> None:
            self.retained: list[bytes] = []

        def run_steps(self, first: int, n: int) -> float:
            created = [bytes(LEAK) for _ in range(n)]
            self.retained += created if kept else []
            return float(n)

    engine = Leaking()
    for _ in range(2):
        in_use = calibrate(engine, 20).memory_in_use
        assert in_use is not None
        growths = [(after - before) / 5 for before, after in pairwise(in_use.bytes)]
        assert growths == pytest.approx([LEAK if kept else 0] * 4, abs=2000)
