"""CPU and memory limits that control groups set for this process; cgroup versions 1 and 2.

A group's limit applies to all groups below it, so every group from this process's own up to the root of its
hierarchy is read. A limit that cannot be read counts as no limit, as on systems without control groups.
https://docs.kernel.org/admin-guide/cgroup-v2.html
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROC_SELF = Path("/proc/self")

_VERSION_2 = ""
"""Marks the version 2 hierarchy in place of a list of version 1 controllers, as in /proc."""


def cpu_quota(process: Path = PROC_SELF) -> float | None:
    """Return the number of processors whose time these groups may use; None without a limit."""
    quotas = (_group_quota(group) for group in _groups("cpu", process))
    return min((quota for quota in quotas if quota is not None), default=None)


def available_memory(process: Path = PROC_SELF) -> int | None:
    """Return the bytes available below the limits, page cache dropped; None without a limit."""
    limits = (_group_available_memory(group) for group in _groups("memory", process))
    return min((room for room in limits if room is not None), default=None)


def _group_quota(group: Path) -> float | None:
    version_1 = [*_read_words(group / "cpu.cfs_quota_us"), *_read_words(group / "cpu.cfs_period_us")]
    words = _read_words(group / "cpu.max") or version_1
    if len(words) < 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _group_available_memory(group: Path) -> int | None:
    limit = _read_words(group / "memory.max") or _read_words(group / "memory.limit_in_bytes")
    usage = _read_words(group / "memory.current") or _read_words(group / "memory.usage_in_bytes") or ["0"]
    if not limit or limit == ["max"]:
        return None
    lines = (line.split() for line in _read_text(group / "memory.stat").splitlines())
    stat = {name: int(value) for name, value in lines}
    # Version 1 usage includes the groups below; so does `total_inactive_file`, but not `inactive_file`.
    cached = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return max(0, int(limit[0]) - max(0, int(usage[0]) - cached))


class _Mount(NamedTuple):
    """A mounted hierarchy, which shows the group `root` at `mount_point`."""

    root: str
    mount_point: Path
    controllers: frozenset[str]


def _groups(controller: str, process: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups that may set the limit, innermost first."""
    mounts = list(_mounts(_read_text(process / "mountinfo")))
    for line in _read_text(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        matching = {controller, _VERSION_2}.intersection(controllers.split(","))
        for mount in mounts:
            if matching & mount.controllers:
                yield from _ancestors(path, mount)


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    """Yield the control groups among the mounts, see proc_pid_mountinfo(5)."""
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        root, point = map(_unescape, mount.split(" ")[3:5])
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2":
            yield _Mount(root, Path(point), frozenset({_VERSION_2}))
        elif kind == "cgroup":
            yield _Mount(root, Path(point), frozenset(options.split(",")))


def _ancestors(path: str, mount: _Mount) -> Iterator[Path]:
    """Yield the group's folder and its ancestors up to the mount, or the mount if the group is elsewhere."""
    group = PurePosixPath(path)
    is_inside = ".." not in group.parts and group.is_relative_to(mount.root)
    parts = group.relative_to(mount.root).parts if is_inside else ()
    for depth in range(len(parts), -1, -1):
        yield mount.mount_point.joinpath(*parts[:depth])


def _unescape(text: str) -> str:
    """Replace the kernel's escapes in a name: a space is written as backslash and 040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)


def _read_words(file: Path) -> list[str]:
    return _read_text(file).split()


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
