"""Which cores a study runs on, over folders like the kernel's of machines that nobody has."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.machine.cores import Core, choose, divide, physical_cores


class Place(NamedTuple):
    """Where a CPU is: which core, in which node of which package, and how fast that core is."""

    package: int
    node: int
    core: int
    capacity: int


Machine = dict[int, Place]


def folder(path: Path, machine: Machine) -> Path:
    """What /sys/devices/system/cpu would be."""
    for cpu, place in machine.items():
        siblings = sorted(other for other, its in machine.items() if its.core == place.core)
        topology = path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
        (topology / "physical_package_id").write_text(f"{place.package}\n")
        (path / f"cpu{cpu}" / f"node{place.node}").mkdir()
        (path / f"cpu{cpu}" / "cpu_capacity").write_text(f"{place.capacity}\n")
    return path


def cores_of(machine: Machine, usable: set[int]) -> list[Core]:
    """The same machine, as it is to be read."""
    cpus = {
        place.core: tuple(cpu for cpu in sorted(usable) if machine[cpu].core == place.core)
        for place in machine.values()
    }
    return [
        Core(cpus[place.core], machine[0].core == place.core, place.package, place.node, place.capacity)
        for place in sorted(set(machine.values()))
        if cpus[place.core]
    ]


def uniform(packages: int, nodes: int, cores: int, threads: int) -> Machine:
    """CPUs numbered as Linux does on Intel: the first hyper-thread of each core, then the second."""
    total = packages * nodes * cores
    return {
        thread * total + core: Place(core // (nodes * cores), core // cores, core, 1024)
        for core in range(total)
        for thread in range(threads)
    }


@pytest.mark.parametrize(
    ("machine", "usable", "wanted", "expected"),
    [
        (uniform(1, 1, 2, 1), None, 1, (1,)),
        (uniform(1, 1, 2, 1), None, 2, (0, 1)),
        (uniform(1, 1, 2, 1), {1}, 1, (1,)),
        (uniform(1, 1, 2, 1), {0}, 1, (0,)),
        (uniform(1, 1, 2, 1), {1}, 2, ()),
        (uniform(1, 1, 4, 2), None, 3, (1, 2, 3)),
        (uniform(1, 1, 4, 2), {0, 4, 2, 6}, 1, (2,)),  # 4 is the other half of the core of CPU 0
        (uniform(1, 1, 4, 2), {4, 2, 6}, 2, (2, 4)),
        (uniform(1, 1, 4, 2), {1, 5}, 2, ()),  # two hyper-threads of one core
        (uniform(2, 2, 4, 2), None, 4, (4, 5, 6, 7)),  # all of node 1: node 0 has CPU 0
        (uniform(2, 2, 4, 1), {0, 1, 2, 3, 4, 5, 6}, 4, (0, 1, 2, 3)),  # near is worth more than not 0
        (uniform(2, 2, 4, 2), None, 5, (1, 2, 3, 4, 5)),
        (uniform(2, 2, 4, 2), None, 8, (8, 9, 10, 11, 12, 13, 14, 15)),
        (uniform(2, 2, 2, 1), None, 5, (1, 2, 3, 4, 5)),
        (uniform(2, 4, 32, 2), None, 128, tuple(range(128, 256))),  # 256 cores: all of the second package
        (uniform(2, 4, 32, 2), None, 257, ()),
    ],
)
def test_choices(
    machine: Machine, usable: set[int] | None, wanted: int, expected: tuple[int, ...], tmp_path: Path
) -> None:
    allowed = set(machine) if usable is None else usable
    found = physical_cores(allowed, folder(tmp_path, machine))
    assert sorted(found) == sorted(cores_of(machine, allowed))
    assert choose(found, wanted) == expected


def test_slow_cores_come_last(tmp_path: Path) -> None:
    fast = {cpu: Place(0, 0, cpu // 2, 1024) for cpu in range(8)}  # 4 cores of 2 threads
    slow = {cpu: Place(0, 0, cpu - 4, 600) for cpu in range(8, 16)}
    cores = physical_cores(range(16), folder(tmp_path, fast | slow))
    assert choose(cores, 3) == (2, 4, 6)
    assert choose(cores, 4) == (0, 2, 4, 6)
    assert choose(cores, 5) == (0, 2, 4, 6, 8)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any number of cores in each node and of threads in each core, numbered in any order."""
    cores = [
        (package, 10 * package + node, draw(st.integers(1, 2)), draw(st.sampled_from([600, 1024])))
        for package in range(draw(st.integers(1, 2)))
        for node in range(draw(st.integers(1, 2)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    places = [
        Place(package, node, number, capacity)
        for number, (package, node, threads, capacity) in enumerate(cores)
        for _ in range(threads)
    ]
    return dict(enumerate(draw(st.permutations(places))))


@given(machines(), st.data())
def test_a_choice_is_on_separate_cores_as_near_as_they_can_be(machine: Machine, data: st.DataObject) -> None:
    usable = data.draw(st.sets(st.sampled_from(sorted(machine)), min_size=1))
    wanted = data.draw(st.integers(1, 6))
    found = choose(cores_of(machine, usable), wanted)

    usable_cores = {machine[cpu].core for cpu in usable}
    if wanted > len(usable_cores):
        assert found == ()
        return
    places = [machine[cpu] for cpu in found]
    assert len({place.core for place in places}) == len(found) == wanted
    assert usable.issuperset(found)
    assert list(found) == sorted(found)

    near: dict[str, dict[int, set[int]]] = {"node": defaultdict(set), "package": defaultdict(set)}
    for cpu in usable:
        for level, groups in near.items():
            groups[getattr(machine[cpu], level)].add(machine[cpu].core)
    for level, groups in near.items():
        if any(len(group) >= wanted for group in groups.values()):
            assert len({getattr(place, level) for place in places}) == 1

    shared = {level: {getattr(place, level) for place in places} for level in near}
    others = {
        machine[cpu].core
        for cpu in usable
        if machine[cpu].node in shared["node"] and machine[cpu].package in shared["package"]
    } - {place.core for place in places}
    speeds = {place.core: place.capacity for place in machine.values()}
    slowest = min(place.capacity for place in places)
    assert all(speeds[core] <= slowest for core in others)
    if machine[0].core in {place.core for place in places}:
        assert not [core for core in others if speeds[core] == speeds[machine[0].core]]


def test_where_the_kernel_does_not_describe_them_there_are_none(tmp_path: Path) -> None:
    assert physical_cores({0, 1}, tmp_path) == []


def test_this_machine_has_cores_and_each_has_cpus_of_its_own() -> None:
    cpus = [cpu for core in physical_cores() for cpu in core.cpus]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))


def test_processes_have_whole_cores_of_their_own() -> None:
    usable = [cpu for core in physical_cores() for cpu in core.cpus]
    shares = divide(usable, 1)
    assert shares == [tuple(sorted(usable))]
    shares = divide((), len(physical_cores()))
    assert sorted(shares) == sorted(core.cpus for core in physical_cores())
    assert divide(usable, len(usable) + 1) == [()] * (len(usable) + 1)
