"""The kernel's own numbers of a process, read as it writes them; and that a peak can be reset."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from polybench.machine.resident_memory import reset_peak, resident

STATUS = """Name:\tpython
VmPeak:\t  900000 kB
VmHWM:\t   70000 kB
VmRSS:\t   60000 kB
RssAnon:\t   40000 kB
RssFile:\t   19000 kB
RssShmem:\t    1000 kB
"""


def test_reads_what_the_kernel_writes(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    found = resident(tmp_path)
    assert (found.anonymous, found.mapped, found.peak) == (40_000 << 10, 20_000 << 10, 70_000 << 10)
    assert found.total == 60_000 << 10


def test_a_kernel_that_does_not_let_the_peak_be_reset(tmp_path: Path) -> None:
    assert not reset_peak(tmp_path / "gone")


def test_a_mapped_file_is_apart_and_a_passed_peak_is_forgotten(tmp_path: Path) -> None:
    size = 64 << 20
    before = resident()
    block = bytearray(size)
    assert resident().anonymous - before.anonymous > 0.9 * size
    del block
    if not reset_peak():
        pytest.skip("this kernel does not let a process reset its peak")
    assert resident().peak < before.total + 0.5 * size
    (tmp_path / "data").write_bytes(bytes(size))
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[:: mmap.PAGESIZE])
        assert resident().mapped - before.mapped > 0.9 * size
