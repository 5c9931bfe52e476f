"""Memory on Linux: the resident set size (RSS) of this process, and processes killed for lack of memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

_PROCESS = Path("/proc/self")

_RESET_PEAK = "5"
"""Written to clear_refs, this sets VmHWM to the current RSS: proc(5), since Linux 4.0."""

_VMSTAT = Path("/proc/vmstat")


class RssReading(msgspec.Struct, frozen=True):
    """Resident bytes: anonymous (private to the process), mapped from files, and the peak of their sum."""

    anonymous: int
    file_mapped: int
    peak: int

    @property
    def total(self) -> int:
        """The number that `ps` and `top` print as resident."""
        return self.anonymous + self.file_mapped


def read_rss(process: Path = _PROCESS) -> RssReading:
    """Read the current RSS; shared memory counts as file-mapped, as in `top`."""
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())

    def field(name: str) -> int:
        return int(fields[name].split()[0]) << 10  # always in KiB

    return RssReading(field("RssAnon"), field("RssFile") + field("RssShmem"), field("VmHWM"))


def reset_peak(process: Path = _PROCESS) -> bool:
    """Reset the peak to the current RSS; returns False if the kernel does not allow it."""
    with contextlib.suppress(OSError):
        (process / "clear_refs").write_text(_RESET_PEAK)
        return True
    return False


_TEST_BYTES = 8 << 20
"""Large, so that what other threads free meanwhile seldom hides it."""

_TESTS = 5
"""XLA's threads, which had compiled a step, have freed more than a test block meanwhile."""


class _MallocInfo(ctypes.Structure):
    """The result of mallinfo2(3); `hblkhd` are bytes of blocks that malloc has mapped, `uordblks` all others in use."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names.split())


def malloc_bytes_in_use() -> int | None:
    """Return the bytes that this process has from malloc and has not freed; None if the C library does not count them.

    Unlike resident memory, they do not contain freed memory that the C library retains, so they do not grow in jumps.
    A preloaded allocator does not count them.
    """
    read = _malloc_reader()
    return read() if read else None


@functools.cache
def _malloc_reader() -> Callable[[], int] | None:
    """Return the function that reads them: glibc has it since 2.33, and a test block shows that it counts malloc."""
    library = ctypes.CDLL(None)
    try:
        mallinfo = library.mallinfo2
    except AttributeError:
        return None
    mallinfo.restype = _MallocInfo
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]

    def read() -> int:
        info = mallinfo()
        return int(info.uordblks + info.hblkhd)

    def counts_a_block() -> bool:
        before = read()
        block = library.malloc(_TEST_BYTES)
        counted = read() - before
        library.free(block)
        return counted >= _TEST_BYTES // 2

    return read if any(counts_a_block() for _ in range(_TESTS)) else None


def kill_count(file: Path = _VMSTAT) -> int | None:
    """Return how many processes the kernel killed since boot for lack of memory; None if it does not report it."""
    try:
        found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
