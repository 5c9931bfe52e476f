"""Physical cores, their caches, and the choice of those to run on.

https://docs.kernel.org/admin-guide/cputopology.html
https://docs.kernel.org/ABI/testing/sysfs-devices-system-cpu (cache/index*)
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CPU_FOLDER = Path("/sys/devices/system/cpu")

_FULL_CAPACITY = 1024
"""Capacity of a core of the fastest kind."""

_UNITS = {"K": 1 << 10, "M": 1 << 20}


class Core(NamedTuple):
    """A physical core, of which this process may be allowed to use only a part.

    `cpus` are its usable hyper-threads. `has_cpu0` is True if CPU 0 is one of its hyper-threads, usable or
    not. `node` is the NUMA node. `capacity` is the speed: 1024 for the fastest kind.
    """

    cpus: tuple[int, ...]
    has_cpu0: bool
    package: int
    node: int
    capacity: int


def usable_cpus() -> set[int]:
    """Return the logical CPUs that this process may run on, by its affinity and its control groups."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def physical_cores(cpus: Collection[int] | None = None, cpu_folder: Path = CPU_FOLDER) -> list[Core]:
    """Return the physical cores with a usable CPU (by default, of this process), ordered by number.

    Returns an empty list if the system does not describe them.
    """
    cores: dict[int, Core] = {}
    for cpu in sorted(usable_cpus() if cpus is None else cpus):
        files = cpu_folder / f"cpu{cpu}"
        try:
            threads = set(_parse_cpu_list((files / "topology" / "thread_siblings_list").read_text()))
            package = int((files / "topology" / "physical_package_id").read_text())
        except OSError:
            return []
        first_sibling = min(threads)
        known_cpus = cores[first_sibling].cpus if first_sibling in cores else ()
        cores[first_sibling] = Core((*known_cpus, cpu), 0 in threads, package, _numa_node(files), _capacity(files))
    return list(cores.values())


def select_cores(cores: Iterable[Core], count: int) -> tuple[int, ...]:
    """Return one logical CPU on each of `count` physical cores, in order; empty if there are not enough
    cores.

    The cores share a NUMA node, or else a package, if one has enough of them. Among these, faster cores are
    preferred. The core of CPU 0 is avoided, since most interrupts arrive there.
    """
    ranked = sorted(cores, key=lambda core: (-core.capacity, core.has_cpu0, core.cpus))

    def slowest_last(cores: list[Core]) -> tuple[int, bool, tuple[int, ...]]:
        return -min(core.capacity for core in cores), any(core.has_cpu0 for core in cores), cores[0].cpus

    for depth in (2, 1, 0):
        groups: dict[tuple[int, ...], list[Core]] = defaultdict(list)
        for core in ranked:
            groups[(core.package, core.node)[:depth]].append(core)
        candidates = [group[:count] for group in groups.values() if len(group) >= count]
        if candidates:
            return tuple(sorted(core.cpus[0] for core in min(candidates, key=slowest_last)))
    return ()


def split_cores(cpus: Collection[int], processes: int) -> list[tuple[int, ...]]:
    """Return each process's logical CPUs, on whole physical cores; () for each if there are too few.

    Empty `cpus` stand for all that this process may use. Cores that remain after an even split are unused.
    """
    all_cpus = list(cpus) or sorted(usable_cpus())
    cores = [core.cpus for core in physical_cores(all_cpus)] or [(cpu,) for cpu in all_cpus]
    cores_per_process = len(cores) // processes
    core_shares = [cores[number * cores_per_process : (number + 1) * cores_per_process] for number in range(processes)]
    return [tuple(sorted(cpu for core in share for cpu in core)) for share in core_shares]


def _parse_cpu_list(text: str) -> Iterator[int]:
    """Parse a list of CPUs: 0-2,64 yields 0, 1, 2, 64."""
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _numa_node(files: Path) -> int:
    """Return the NUMA node, which the kernel links in the CPU's folder; 0 on machines without NUMA."""
    return next((int(link.name.removeprefix("node")) for link in files.glob("node[0-9]*")), 0)


def _capacity(files: Path) -> int:
    try:
        return int((files / "cpu_capacity").read_text())
    except OSError:
        return _FULL_CAPACITY


def last_level_cache_bytes(
    threads: int, cpus: Collection[int] | None = None, cpu_folder: Path = CPU_FOLDER
) -> int | None:
    """Return the total size of the last-level caches that `threads` threads can use; None if it is unknown.

    The threads run on separate cores, each of which may have its own cache.
    """
    bytes_by_sharing_cpus: dict[str, int] = {}
    for cpu in usable_cpus() if cpus is None else cpus:
        caches = list((cpu_folder / f"cpu{cpu}" / "cache").glob("index*"))
        try:
            last_level = max(caches, key=lambda cache: int((cache / "level").read_text()))
            sharing_cpus = (last_level / "shared_cpu_list").read_text()
            size = (last_level / "size").read_text().strip()
            bytes_by_sharing_cpus[sharing_cpus] = int(size[:-1]) * _UNITS[size[-1]]
        except (OSError, ValueError, KeyError):
            return None
    return sum(sorted(bytes_by_sharing_cpus.values(), reverse=True)[:threads])
