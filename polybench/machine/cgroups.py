"""What this process's control groups leave it of processors and memory; versions 1 and 2.

A group's limit holds for all groups below it: each one from this process's own up to its hierarchy's root is
looked at. What cannot be read is no limit, as it is where there are no control groups.
https://docs.kernel.org/admin-guide/cgroup-v2.html
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROCESS = Path("/proc/self")

_UNIFIED = ""
"""Stands where a hierarchy of version 1 names its controllers for that of version 2, as in /proc."""


def cpu_quota(process: Path = PROCESS) -> float | None:
    """How many processors' time these groups may take; None without a limit.

    Args:
        process: where this process is in /proc.
    """
    quotas = (_quota(group) for group in _groups("cpu", process))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_left(process: Path = PROCESS) -> int | None:
    """Bytes that can be taken until a limit is reached, cached files dropped; None without a limit."""
    rooms = (_room(group) for group in _groups("memory", process))
    return min((room for room in rooms if room is not None), default=None)


def _quota(group: Path) -> float | None:
    version_1 = [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
    words = _words(group / "cpu.max") or version_1
    if len(words) < 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _room(group: Path) -> int | None:
    limit = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
    used = _words(group / "memory.current") or _words(group / "memory.usage_in_bytes") or ["0"]
    if not limit or limit == ["max"]:
        return None
    lines = (line.split() for line in _text(group / "memory.stat").splitlines())
    stat = {name: int(value) for name, value in lines}
    # In version 1 what is used is that of the groups below, too, and only `total_inactive_file` is so.
    cached = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return max(0, int(limit[0]) - max(0, int(used[0]) - cached))


class _Mount(NamedTuple):
    """A mounted hierarchy: `root` is the group that is seen at `point`."""

    root: str
    point: Path
    controllers: frozenset[str]


def _groups(controller: str, process: Path) -> Iterator[Path]:
    """Folders of this process's groups that may have such a limit, its own before those above."""
    mounts = list(_mounts(_text(process / "mountinfo")))
    for line in _text(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own = {controller, _UNIFIED}.intersection(controllers.split(","))
        for mount in mounts:
            if own & mount.controllers:
                yield from _upwards(path, mount)


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    """The control groups among the mounts, see proc_pid_mountinfo(5)."""
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        root, point = map(_unescaped, mount.split(" ")[3:5])
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2":
            yield _Mount(root, Path(point), frozenset({_UNIFIED}))
        elif kind == "cgroup":
            yield _Mount(root, Path(point), frozenset(options.split(",")))


def _upwards(path: str, mount: _Mount) -> Iterator[Path]:
    """The group's folder and those above, up to the mount; that alone where it does not hold the group."""
    group = PurePosixPath(path)
    inside = ".." not in group.parts and group.is_relative_to(mount.root)
    parts = group.relative_to(mount.root).parts if inside else ()
    for depth in range(len(parts), -1, -1):
        yield mount.point.joinpath(*parts[:depth])


def _unescaped(text: str) -> str:
    """A name without the kernel's escapes: a space is written as backslash and 040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)


def _words(file: Path) -> list[str]:
    return _text(file).split()


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
