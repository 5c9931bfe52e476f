"""Resident set size as the kernel writes it, and resetting its peak."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from polybench.machine.memory import read_rss, reset_peak

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
