"""Passes for memory and allocations: their order, and the steps that they run."""

from __future__ import annotations

from polybench.engines.fake.engine import ALLOCATIONS, FakeEngine
from polybench.schema.resources import Allocations
from polybench.worker.count_allocations import measure_memory_and_allocations

GROWTH = 96 << 20


class MemoryHog(FakeEngine):
    """Allocates memory briefly in each step, and more in the counting pass."""

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
        return Allocations(host=ALLOCATIONS)

    def device_peak_bytes(self) -> int:
        return 123


def test_memory_and_allocations_have_separate_passes_over_the_timed_steps() -> None:
    engine = MemoryHog()
    memory, allocations = measure_memory_and_allocations(engine, 5)
    warm_up = ["reset", "run 0+1", "run 1+1"]
    assert engine.calls == [*warm_up, "run 2+5", *warm_up, "count 2+5"]
    assert allocations.host == ALLOCATIONS
    assert allocations.device is None
    assert memory.device_peak_bytes == 123


def test_the_memory_peak_excludes_the_counting_pass() -> None:
    memory, _ = measure_memory_and_allocations(MemoryHog(), 5)
    assert memory.step_peak_increase_bytes is None or (0.8 * GROWTH < memory.step_peak_increase_bytes < 2 * GROWTH)
    assert memory.rss_anon_bytes is not None
    assert memory.rss_file_bytes is not None
    assert memory.peak_rss_bytes is not None
    assert memory.peak_rss_bytes > memory.rss_anon_bytes
