"""Passes for memory and allocations, and native allocations counted by memray: what it sees, and its own overhead."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Callable

import pytest

from polybench.engines.fake.engine import ALLOCATIONS
from polybench.errors import EngineUnavailable
from polybench.machine.memory import RssReading
from polybench.schema.resources import Allocations
from polybench.worker.allocations import COVERAGE, count_native_allocations, measure_memory_and_allocations, size_class
from tests.worker.recorder import Recorder

GROWTH = 96 << 20


class MemoryHog(Recorder):
    """Allocates memory briefly in each step, and more in the counting pass."""

    def run_steps(self, first: int, n: int) -> float:
        bytearray(GROWTH)
        return super().run_steps(first, n)

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


@pytest.mark.parametrize("earlier", [90, 300])
def test_the_peak_of_the_steps_is_that_above_the_memory_before_them(
    earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([RssReading(1, 1, earlier), RssReading(30, 12, 50), RssReading(31, 12, 100)])
    monkeypatch.setattr("polybench.worker.allocations.read_rss", lambda: next(readings))
    monkeypatch.setattr("polybench.worker.allocations.reset_peak", lambda: True)
    memory, _ = measure_memory_and_allocations(Recorder(), 5)
    assert (memory.step_peak_increase_bytes, memory.peak_rss_bytes) == (100 - 42, max(earlier, 100))


MIB = 1 << 20
ALLOCATED = 10 * MIB
STEPS = 5


class Allocating(Recorder):
    """Calls `allocate` in every step, and keeps its result until the next step."""

    def __init__(self, allocate: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._allocate = allocate

    def run_steps(self, first: int, n: int) -> float:
        for _ in range(n):
            self._kept_result = None
            self._kept_result = self._allocate()
        return super().run_steps(first, n)


def in_a_thread() -> object:
    allocated: list[bytearray] = []
    thread = threading.Thread(target=lambda: allocated.append(bytearray(ALLOCATED)))
    thread.start()
    thread.join()
    return allocated


def test_the_timed_steps_are_counted() -> None:
    engine = Allocating()
    count_native_allocations(engine, STEPS)
    assert engine.calls == ["reset", "run 0+1", "run 1+1", f"run 2+{STEPS}"]


def test_counting_itself_allocates_almost_nothing() -> None:
    allocations = count_native_allocations(Allocating(), STEPS)
    assert allocations.bytes_per_step < 1e-4 * ALLOCATED
    assert allocations.peak_live_bytes < 1e-3 * ALLOCATED
    assert allocations.count_per_step < 10


@pytest.mark.parametrize(
    "allocate",
    [lambda: bytearray(ALLOCATED), lambda: mmap.mmap(-1, ALLOCATED), in_a_thread],
    ids=["calloc", "mmap", "thread"],
)
def test_allocations_of_each_kind_are_counted(allocate: Callable[[], object]) -> None:
    allocations = count_native_allocations(Allocating(allocate), STEPS)
    assert allocations.bytes_per_step == pytest.approx(ALLOCATED, rel=0.01)
    assert allocations.peak_live_bytes == pytest.approx(ALLOCATED, rel=0.01)
    assert allocations.by_size.ge_256kib == 1
    assert allocations.coverage == COVERAGE


def test_calls_that_bypass_dynamic_linking_are_not_counted() -> None:
    """For example, compiled code that looks up malloc itself."""
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    assert (
        count_native_allocations(Allocating(lambda: libc.free(libc.malloc(ALLOCATED))), STEPS).bytes_per_step
        < 0.01 * ALLOCATED
    )


def test_the_peak_counts_simultaneously_live_allocations() -> None:
    allocations = count_native_allocations(Allocating(lambda: [bytearray(MIB) for _ in range(3)]), STEPS)
    assert allocations.bytes_per_step == pytest.approx(3 * MIB, rel=0.01)
    assert allocations.peak_live_bytes == pytest.approx(3 * MIB, rel=0.01)
    freed_at_once = count_native_allocations(Allocating(lambda: [len(bytearray(MIB)) for _ in range(3)]), STEPS)
    assert freed_at_once.bytes_per_step == pytest.approx(3 * MIB, rel=0.01)
    assert freed_at_once.peak_live_bytes == pytest.approx(MIB, rel=0.01)


def test_allocations_are_counted_by_size() -> None:
    def allocate() -> object:
        return [bytearray(size) for size in (600, 700, 2000, 200_000, MIB)]  # Python has a pool for up to 512 B

    allocations = count_native_allocations(Allocating(allocate), STEPS).by_size
    assert allocations.lt_1kib >= 2
    assert (allocations.ge_1kib_lt_256kib, allocations.ge_256kib) == (pytest.approx(2, abs=0.5), 1)


@pytest.mark.parametrize(("size", "limit"), [(1 << 10, "1kib"), (256 << 10, "256kib")])
def test_a_size_class_begins_at_its_limit(size: int, limit: str) -> None:
    assert size_class(size - 1).endswith(f"lt_{limit}")
    assert size_class(size).startswith(f"ge_{limit}")


def test_coverage_names_allocations_from_the_engines_pools() -> None:
    class Pooled(Allocating):
        def untraced_native_allocations(self) -> str:
            return "allocations from the pool"

    assert count_native_allocations(Pooled(), 1).coverage == f"{COVERAGE}; not allocations from the pool"


def test_native_allocations_are_unavailable_without_memray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    with pytest.raises(EngineUnavailable, match="cannot import memray") as error:
        count_native_allocations(Allocating(), 1)
    assert error.value.hint == "pip install 'polybench-dl[memray]'"
