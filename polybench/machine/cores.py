"""Physical cores, and which of them to run on.

https://docs.kernel.org/admin-guide/cputopology.html
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CPUS = Path("/sys/devices/system/cpu")

_FULL_CAPACITY = 1024
"""Of a core that is as fast as any other."""


class Core(NamedTuple):
    """A physical core, for a process that may not run on all of it.

    `cpus` are those of its hyper-threads that it may use, and `first` says whether CPU 0 is one of them,
    usable or not. `node` is of NUMA. `capacity` is its speed, 1024 for the fastest kind.
    """

    cpus: tuple[int, ...]
    first: bool
    package: int
    node: int
    capacity: int


def usable_cpus() -> set[int]:
    """The logical CPUs on which this process may run: by its affinity, within its control groups."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def physical_cores(usable: Collection[int] | None = None, folder: Path = CPUS) -> list[Core]:
    """The physical cores with a usable CPU, by number; none where the system does not tell.

    Args:
        usable: logical CPUs, by default those of this process.
        folder: where the kernel describes them.
    """
    cores: dict[int, Core] = {}
    for cpu in sorted(usable_cpus() if usable is None else usable):
        files = folder / f"cpu{cpu}"
        try:
            threads = set(_numbers((files / "topology" / "thread_siblings_list").read_text()))
            package = int((files / "topology" / "physical_package_id").read_text())
        except OSError:
            return []
        key = min(threads)
        earlier = cores[key].cpus if key in cores else ()
        cores[key] = Core((*earlier, cpu), 0 in threads, package, _node(files), _capacity(files))
    return list(cores.values())


def choose(cores: Iterable[Core], wanted: int) -> tuple[int, ...]:
    """One logical CPU on each of `wanted` physical cores, in order; empty where there are not so many.

    They share a NUMA node, or else a package, where one has enough of them. Then faster cores are preferred,
    and any other to that of CPU 0, where most interrupts arrive.
    """
    ranked = sorted(cores, key=lambda core: (-core.capacity, core.first, core.cpus))
    for depth in (2, 1, 0):
        near: dict[tuple[int, ...], list[Core]] = defaultdict(list)
        for core in ranked:
            near[(core.package, core.node)[:depth]].append(core)
        candidates = [group[:wanted] for group in near.values() if len(group) >= wanted]
        if candidates:
            return tuple(sorted(core.cpus[0] for core in min(candidates, key=_rank)))
    return ()


def divide(cpus: Collection[int], parts: int) -> list[tuple[int, ...]]:
    """Logical CPUs for so many processes, physical cores undivided; () for each where there are too few.

    Args:
        cpus: to be divided; none are all that this process may use.
        parts: as many as processes; what is left over is nobody's.
    """
    usable = list(cpus) or sorted(usable_cpus())
    whole = [core.cpus for core in physical_cores(usable)] or [(cpu,) for cpu in usable]
    each = len(whole) // parts
    shares = [whole[number * each : (number + 1) * each] for number in range(parts)]
    return [tuple(sorted(cpu for core in share for cpu in core)) for share in shares]


def _rank(cores: list[Core]) -> tuple[int, bool, tuple[int, ...]]:
    """Of cores that are equally near to each other, the smallest is the best."""
    slowest = min(core.capacity for core in cores)
    return -slowest, any(core.first for core in cores), cores[0].cpus


def _numbers(text: str) -> Iterator[int]:
    """0-2,64 -> 0, 1, 2, 64."""
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _node(files: Path) -> int:
    """The NUMA node, a link to which the kernel has in a CPU's folder; 0 on a machine without."""
    return next((int(link.name.removeprefix("node")) for link in files.glob("node[0-9]*")), 0)


def _capacity(files: Path) -> int:
    try:
        return int((files / "cpu_capacity").read_text())
    except OSError:
        return _FULL_CAPACITY
