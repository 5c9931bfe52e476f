"""Selection of cores, in folders like the kernel's for simulated machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from polybench.machine.cores import Core, last_level_cache_bytes, physical_cores, select_cores, split_cores


class CpuPlacement(NamedTuple):
    """Package, node and core of a CPU, and the speed of that core."""

    package: int
    node: int
    core: int
    capacity: int


Machine = dict[int, CpuPlacement]


def folder(path: Path, machine: Machine) -> Path:
    """Create a folder like /sys/devices/system/cpu."""
    for cpu, placement in machine.items():
        siblings = sorted(other for other, its in machine.items() if its.core == placement.core)
        topology = path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
        (topology / "physical_package_id").write_text(f"{placement.package}\n")
        (path / f"cpu{cpu}" / f"node{placement.node}").mkdir()
        (path / f"cpu{cpu}" / "cpu_capacity").write_text(f"{placement.capacity}\n")
    return path


def cores_of(machine: Machine, usable: set[int]) -> list[Core]:
    """Return the cores that polybench should find on this machine."""
    cpus = {
        placement.core: tuple(cpu for cpu in sorted(usable) if machine[cpu].core == placement.core)
        for placement in machine.values()
    }
    return [
        Core(
            cpus[placement.core],
            machine[0].core == placement.core,
            placement.package,
            placement.node,
            placement.capacity,
        )
        for placement in sorted(set(machine.values()))
        if cpus[placement.core]
    ]


def uniform(packages: int, nodes: int, cores: int, threads: int) -> Machine:
    """Number CPUs as Linux does on Intel: the first hyper-thread of each core, then the second."""
    total = packages * nodes * cores
    return {
        thread * total + core: CpuPlacement(core // (nodes * cores), core // cores, core, 1024)
        for core in range(total)
        for thread in range(threads)
    }


@pytest.mark.parametrize(
    ("machine", "usable", "count", "expected"),
    [
        (uniform(1, 1, 2, 1), None, 1, (1,)),
        (uniform(1, 1, 2, 1), None, 2, (0, 1)),
        (uniform(1, 1, 2, 1), {1}, 1, (1,)),
        (uniform(1, 1, 2, 1), {0}, 1, (0,)),
        (uniform(1, 1, 2, 1), {1}, 2, ()),
        (uniform(1, 1, 4, 2), None, 3, (1, 2, 3)),
        (uniform(1, 1, 4, 2), {0, 4, 2, 6}, 1, (2,)),  # 4 is the second hyper-thread of CPU 0's core
        (uniform(1, 1, 4, 2), {4, 2, 6}, 2, (2, 4)),
        (uniform(1, 1, 4, 2), {1, 5}, 2, ()),  # two hyper-threads of one core
        (uniform(2, 2, 4, 2), None, 4, (4, 5, 6, 7)),  # all of node 1: node 0 has CPU 0
        (uniform(2, 2, 4, 1), {0, 1, 2, 3, 4, 5, 6}, 4, (0, 1, 2, 3)),  # proximity matters more than avoiding CPU 0
        (uniform(2, 2, 4, 2), None, 5, (1, 2, 3, 4, 5)),
        (uniform(2, 2, 4, 2), None, 8, (8, 9, 10, 11, 12, 13, 14, 15)),
        (uniform(2, 2, 2, 1), None, 5, (1, 2, 3, 4, 5)),
        (uniform(2, 4, 32, 2), None, 128, tuple(range(128, 256))),  # 256 cores: all of the second package
        (uniform(2, 4, 4, 2), None, 33, ()),
    ],
)
def test_selected_cores_on_typical_machines(
    machine: Machine, usable: set[int] | None, count: int, expected: tuple[int, ...], tmp_path: Path
) -> None:
    allowed = set(machine) if usable is None else usable
    found = physical_cores(allowed, folder(tmp_path, machine))
    assert sorted(found) == sorted(cores_of(machine, allowed))
    assert select_cores(found, count) == expected


def test_slow_cores_are_selected_last(tmp_path: Path) -> None:
    fast = {cpu: CpuPlacement(0, 0, cpu // 2, 1024) for cpu in range(8)}  # 4 cores with 2 threads each
    slow = {cpu: CpuPlacement(0, 0, cpu - 4, 600) for cpu in range(8, 16)}
    cores = physical_cores(range(16), folder(tmp_path, fast | slow))
    assert select_cores(cores, 3) == (2, 4, 6)
    assert select_cores(cores, 4) == (0, 2, 4, 6)
    assert select_cores(cores, 5) == (0, 2, 4, 6, 8)


def test_no_cores_are_found_if_the_kernel_does_not_describe_them(tmp_path: Path) -> None:
    assert physical_cores({0, 1}, tmp_path) == []


def test_cores_of_this_machine_have_separate_cpus() -> None:
    cpus = [cpu for core in physical_cores() for cpu in core.cpus]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))


def test_each_process_gets_whole_cores() -> None:
    usable = [cpu for core in physical_cores() for cpu in core.cpus]
    shares = split_cores(usable, 1)
    assert shares == [tuple(sorted(usable))]
    shares = split_cores((), len(physical_cores()))
    assert sorted(shares) == sorted(core.cpus for core in physical_cores())
    assert split_cores(usable, len(usable) + 1) == [()] * (len(usable) + 1)


def machine(folder: Path, shared: list[str]) -> Path:
    """Describe CPUs with 1 MiB of private cache each, and 32 MiB shared by the given CPUs."""
    for cpu, others in enumerate(shared):
        for index, (level, size, sharing) in enumerate(
            [("1", "32K", f"{cpu}"), ("2", "1M", f"{cpu}"), ("3", "32768K", others)]
        ):
            cache = folder / f"cpu{cpu}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", sharing)):
                (cache / name).write_text(f"{text}\n")
    return folder


def test_shared_cache_counts_once(tmp_path: Path) -> None:
    folder = machine(tmp_path, ["0-1", "0-1", "2-3", "2-3"])
    assert last_level_cache_bytes(2, {0, 1}, folder) == 32 << 20
    assert last_level_cache_bytes(4, {0, 1, 2, 3}, folder) == 64 << 20
    assert last_level_cache_bytes(1, {0, 1, 2, 3}, folder) == 32 << 20  # one thread can use one of them


def test_cache_size_is_unknown_if_the_kernel_does_not_describe_it(tmp_path: Path) -> None:
    assert last_level_cache_bytes(2, {0, 1}, tmp_path) is None


def test_threads_use_the_largest_caches(tmp_path: Path) -> None:
    folder = machine(tmp_path, ["0", "1", "2"])
    for cpu, size in enumerate(("8M", "96M", "32M")):
        (folder / f"cpu{cpu}" / "cache" / "index2" / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(2, {0, 1, 2}, folder) == (96 + 32) << 20
