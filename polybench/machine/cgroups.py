"""CPU and memory limits that control groups set for this process, and their effect; cgroup versions 1 and 2.

A group's limit applies to all groups below it, so every group from this process's own up to the root of its
hierarchy is read. A limit that cannot be read counts as no limit, as on systems without control groups.
https://docs.kernel.org/admin-guide/cgroup-v2.html
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROC_SELF = Path("/proc/self")


def cpu_quota(process: Path = PROC_SELF) -> float | None:
    """Return the number of processors whose time these groups may use; None without a limit."""
    quotas = []
    for group in _groups("cpu", process):
        version_1 = [*_read_words(group / "cpu.cfs_quota_us"), *_read_words(group / "cpu.cfs_period_us")]
        words = _read_words(group / "cpu.max") or version_1
        if len(words) == 2 and words[0] not in ("max", "-1"):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def throttled_seconds(process: Path = PROC_SELF) -> float | None:
    """Return the seconds so far in which a CPU quota stopped the threads of these groups; None if it is unknown.

    A group's count does not contain that of the groups around it, so this is the largest one.
    """
    seconds = []
    for group in _groups("cpu", process):
        words = _read_words(group / "cpu.stat")
        stat = dict(zip(words[::2], words[1::2], strict=False))
        if "throttled_usec" in stat:
            seconds.append(int(stat["throttled_usec"]) / 1e6)
        elif "throttled_time" in stat:
            seconds.append(int(stat["throttled_time"]) / 1e9)
    return max(seconds, default=None)


def available_memory(process: Path = PROC_SELF) -> int | None:
    """Return the bytes available below the limits, page cache dropped; None without a limit."""
    available = []
    for group in _groups("memory", process):
        limit = _read_words(group / "memory.max") or _read_words(group / "memory.limit_in_bytes")
        usage = _read_words(group / "memory.current") or _read_words(group / "memory.usage_in_bytes") or ["0"]
        if limit and limit != ["max"]:
            words = _read_words(group / "memory.stat")
            stat = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            # Version 1 usage includes the groups below; so does `total_inactive_file`, but not `inactive_file`.
            cached = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            available.append(max(0, int(limit[0]) - max(0, int(usage[0]) - cached)))
    return min(available, default=None)


@functools.cache
def _groups(controller: str, process: Path) -> tuple[Path, ...]:
    """Return the folders of this process's groups that may set the limit; a process stays in its groups."""
    return tuple(_find_groups(controller, process))


def _find_groups(controller: str, process: Path) -> Iterator[Path]:
    """Yield these folders; see proc_pid_mountinfo(5)."""
    own = [line.split(":", 2)[1:] for line in _read_text(process / "cgroup").splitlines()]
    mounts = [line.partition(" - ") for line in _read_text(process / "mountinfo").splitlines() if " - cgroup" in line]
    for mount, _, system in mounts:
        # The kernel writes a space in a name as backslash and 040.
        root, point = (
            re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text) for text in mount.split(" ")[3:5]
        )
        kind, _, options = system.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        mounted = {""} if kind == "cgroup2" else {controller} & set(options.split(","))
        for controllers, path in own:  # "" stands for the controllers of version 2
            if mounted & set(controllers.split(",")):
                group = PurePosixPath(path)
                is_inside = ".." not in group.parts and group.is_relative_to(root)
                parts = group.relative_to(root).parts if is_inside else ()  # else only the mounted group is visible
                yield from (Path(point, *parts[:depth]) for depth in range(len(parts) + 1))


def _read_words(file: Path) -> list[str]:
    return _read_text(file).split()


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
