"""The resident set of this process, as Linux keeps it: now, and at its peak since a moment of our choice."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

_PROCESS = Path("/proc/self")

_RESET_PEAK = "5"
"""Written to clear_refs, sets VmHWM to what is resident now: proc(5), since Linux 4.0."""


class Resident(msgspec.Struct, frozen=True):
    """Bytes in memory: anonymous (the process's own), mapped from files, and the peak of their sum."""

    anonymous: int
    mapped: int
    peak: int

    @property
    def total(self) -> int:
        """What `ps` and `top` call resident."""
        return self.anonymous + self.mapped


def resident(process: Path = _PROCESS) -> Resident:
    """What is resident now; shared memory counts as mapped, as in the `top` of every system."""
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())

    def of(name: str) -> int:
        return int(fields[name].split()[0]) << 10  # always in KiB

    return Resident(of("RssAnon"), of("RssFile") + of("RssShmem"), of("VmHWM"))


def reset_peak(process: Path = _PROCESS) -> bool:
    """Let the peak start anew from what is resident now; False where the kernel does not allow it."""
    with contextlib.suppress(OSError):
        (process / "clear_refs").write_text(_RESET_PEAK)
        return True
    return False
