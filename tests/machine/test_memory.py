"""Resident set size as the kernel writes it, and resetting its peak."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from polybench.machine import memory
from polybench.machine.memory import malloc_bytes_in_use, read_rss, reset_peak

STATUS = """Name:\tpython
VmPeak:\t  900000 kB
VmHWM:\t   70000 kB
VmRSS:\t   60000 kB
RssAnon:\t   40000 kB
RssFile:\t   19000 kB
RssShmem:\t    1000 kB
"""


def test_status_of_the_kernel_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    found = read_rss(tmp_path)
    assert (found.anonymous, found.file_mapped, found.peak) == (40_000 << 10, 20_000 << 10, 70_000 << 10)
    assert found.total == 60_000 << 10


def test_reset_fails_if_the_kernel_does_not_allow_it(tmp_path: Path) -> None:
    assert not reset_peak(tmp_path / "gone")


def test_mapped_files_are_separate_and_the_peak_can_be_reset(tmp_path: Path) -> None:
    size = 64 << 20
    before = read_rss()
    block = bytearray(size)
    assert read_rss().anonymous - before.anonymous > 0.9 * size
    del block
    if not reset_peak():
        pytest.skip("this kernel does not let a process reset its peak")
    assert read_rss().peak < before.total + 0.5 * size
    (tmp_path / "data").write_bytes(bytes(size))
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[:: mmap.PAGESIZE])
        assert read_rss().file_mapped - before.file_mapped > 0.9 * size


SIZE = 40 << 20
"""More than glibc ever takes from an arena (DEFAULT_MMAP_THRESHOLD_MAX)."""


def in_a_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not count malloc's blocks")
@pytest.mark.parametrize("run", [lambda action: action(), in_a_thread], ids=["main thread", "another thread"])
@pytest.mark.parametrize("size", [SIZE, 1000], ids=["mapped", "in an arena"])
def test_malloc_counts_what_is_not_freed_on_every_thread(run: Callable[..., None], size: int) -> None:
    before = malloc_bytes_in_use()
    assert before is not None
    blocks: list[bytes] = []
    run(lambda: blocks.extend(bytes(size) for _ in range(SIZE // size)))
    during = malloc_bytes_in_use()
    assert during is not None
    assert during - before == pytest.approx(SIZE, rel=0.1)
    blocks.clear()
    after = malloc_bytes_in_use()
    assert after is not None
    assert after - before < 0.02 * SIZE


class OtherAllocator:
    """A C library whose malloc is another one, which its counters do not see."""

    def __init__(self, *missing: str) -> None:
        self._library, self._missing = ctypes.CDLL(None), missing
        self.mallinfo2: object
        self.malloc, self.free = (type("", (), {"__call__": lambda *_: 0})() for _ in range(2))

    def __getattr__(self, name: str) -> object:
        if name in self._missing:
            raise AttributeError(name)
        return getattr(self._library, name)


def test_a_block_that_another_thread_hides_is_tested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([10**8, 0, 0, 10**8])  # the first block is allocated while much more is freed
    library = OtherAllocator()
    library.mallinfo2 = type("", (), {"__call__": lambda _: memory._MallocInfo(hblkhd=next(sizes))})()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert memory._malloc_reader.__wrapped__() is not None


@pytest.mark.parametrize("library", [OtherAllocator(), OtherAllocator("mallinfo2")])
def test_malloc_has_no_count_that_does_not_see_its_blocks(
    library: OtherAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert memory._malloc_reader.__wrapped__() is None
