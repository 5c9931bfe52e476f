"""Memory on Linux: the resident set size (RSS) of this process, and processes killed for lack of memory."""

from __future__ import annotations

import contextlib
import re
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


def kill_count(file: Path = _VMSTAT) -> int | None:
    """Return how many processes the kernel killed since boot for lack of memory; None if it does not report it."""
    try:
        found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
