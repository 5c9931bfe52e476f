"""The pass that asks memray: what it finds of what is planted, what it does not, what it costs itself."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.core.errors import Unavailable
from polybench.engines.fake.engine import FakeEngine
from polybench.worker.native import COVERS, MEDIUM_TO, SMALL_BELOW, count_native, size_class

MIB = 1 << 20
PLANTED = 10 * MIB
STEPS = 5


class Planting(FakeEngine):
    """Does this in every step, and keeps what it gives until the next one."""

    def __init__(self, plant: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._plant = plant
        self.calls: list[str] = []

    def reset(self) -> None:
        self.calls.append("reset")

    def run_steps(self, first: int, n: int) -> float:
        self.calls.append(f"run {first}+{n}")
        for _ in range(n):
            self._kept = None
            self._kept = self._plant()
        return 0.0


def in_a_thread() -> object:
    kept: list[bytearray] = []
    thread = threading.Thread(target=lambda: kept.append(bytearray(PLANTED)))
    thread.start()
    thread.join()
    return kept


def test_the_steps_that_are_timed_are_counted() -> None:
    engine = Planting()
    count_native(engine, STEPS)
    assert engine.calls == ["reset", "run 0+1", "run 1+1", f"run 2+{STEPS}"]


def test_counting_itself_is_next_to_nothing() -> None:
    found = count_native(Planting(), STEPS)
    assert found.bytes_per_step < 1e-4 * PLANTED
    assert found.live_peak_bytes < 1e-3 * PLANTED
    assert found.count_per_step < 10


@pytest.mark.parametrize(
    "plant",
    [lambda: bytearray(PLANTED), lambda: mmap.mmap(-1, PLANTED), in_a_thread],
    ids=["calloc", "mmap", "thread"],
)
def test_what_is_planted_is_found(plant: Callable[[], object]) -> None:
    found = count_native(Planting(plant), STEPS)
    assert found.bytes_per_step == pytest.approx(PLANTED, rel=0.01)
    assert found.live_peak_bytes == pytest.approx(PLANTED, rel=0.01)
    assert found.by_size.large == 1
    assert found.covers == COVERS


def test_what_is_called_past_the_linkage_of_a_library_is_not_seen() -> None:
    """As compiled code does that looked up malloc for itself."""
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    assert (
        count_native(Planting(lambda: libc.free(libc.malloc(PLANTED))), STEPS).bytes_per_step < 0.01 * PLANTED
    )


def test_the_peak_is_of_what_lives_at_one_time() -> None:
    found = count_native(Planting(lambda: [bytearray(MIB) for _ in range(3)]), STEPS)
    assert found.bytes_per_step == pytest.approx(3 * MIB, rel=0.01)
    assert found.live_peak_bytes == pytest.approx(3 * MIB, rel=0.01)
    freed_at_once = count_native(Planting(lambda: [len(bytearray(MIB)) for _ in range(3)]), STEPS)
    assert freed_at_once.bytes_per_step == pytest.approx(3 * MIB, rel=0.01)
    assert freed_at_once.live_peak_bytes == pytest.approx(MIB, rel=0.01)


def test_sizes_have_classes() -> None:
    def plant() -> object:
        return [bytearray(size) for size in (600, 700, 2000, 200_000, MIB)]  # below 512 B Python has a pool

    found = count_native(Planting(plant), STEPS).by_size
    assert found.small >= 2
    assert (found.medium, found.large) == (pytest.approx(2, abs=0.5), 1)


@given(st.integers(0, 1 << 40))
def test_every_size_has_one_class(size: int) -> None:
    assert size_class(size) == ("small" if size < SMALL_BELOW else "medium" if size <= MEDIUM_TO else "large")
    assert [size_class(edge) for edge in (1023, 1024, 262_144, 262_145)] == [
        "small",
        "medium",
        "medium",
        "large",
    ]


def test_what_an_engine_has_from_pools_is_told() -> None:
    class Pooled(Planting):
        def unseen_natively(self) -> str:
            return "what the pool has"

    assert count_native(Pooled(), 1).covers == f"{COVERS}; not what the pool has"


def test_without_memray_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    with pytest.raises(Unavailable, match="memray does not load") as missing:
        count_native(Planting(), 1)
    assert missing.value.remedy == "pip install 'polybench[memray]'"
