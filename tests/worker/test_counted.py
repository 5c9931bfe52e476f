"""The passes that count: in order, apart from each other, on the steps that are timed."""

from __future__ import annotations

from polybench.core.document.resources import Allocations
from polybench.engines.fake.engine import ALLOCATED, FakeEngine
from polybench.worker.counted import count

GROWTH = 96 << 20


class Hungry(FakeEngine):
    """Takes memory for a moment in each step, and more of it while it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def reset(self) -> None:
        self.calls.append("reset")

    def run_steps(self, first: int, n: int) -> float:
        self.calls.append(f"run {first}+{n}")
        bytearray(GROWTH)
        return 1.0

    def count_allocations(self, first: int, n: int) -> Allocations:
        self.calls.append(f"count {first}+{n}")
        bytearray(4 * GROWTH)
        return Allocations(host=ALLOCATED)

    def device_peak_bytes(self) -> int:
        return 123


def test_memory_and_allocations_are_two_passes_over_the_timed_steps() -> None:
    engine = Hungry()
    memory, allocations = count(engine, 5)
    start = ["reset", "run 0+1", "run 1+1"]
    assert engine.calls == [*start, "run 2+5", *start, "count 2+5"]
    assert allocations.host == ALLOCATED
    assert allocations.device is None
    assert memory.device_peak_bytes == 123


def test_the_peak_of_the_steps_is_not_that_of_the_counting() -> None:
    memory, _ = count(Hungry(), 5)
    assert memory.step_peak_increase_bytes is None or (
        0.8 * GROWTH < memory.step_peak_increase_bytes < 2 * GROWTH
    )
    assert memory.rss_anon_bytes is not None
    assert memory.rss_file_bytes is not None
    assert memory.peak_rss_bytes is not None
    assert memory.peak_rss_bytes > memory.rss_anon_bytes
