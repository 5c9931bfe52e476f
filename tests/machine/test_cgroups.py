"""Limits of control groups, in folders like the kernel's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polybench.machine.cgroups import available_memory, cpu_quota, throttled_seconds

MIB = 1 << 20
V1_NO_LIMIT = 9223372036854771712


def process(folder: Path, *hierarchies: tuple[str, str, str, Path]) -> Path:
    """Create a folder like /proc/self; a hierarchy is (controllers, own group, mounted root, mount point)."""
    groups = [f"{number}:{name}:{path}" for number, (name, path, _, _) in enumerate(hierarchies)]
    mounts = ["22 27 0:21 / /proc rw,relatime - proc proc rw", "27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw"]
    for controllers, _, root, point in hierarchies:
        escaped = str(point).replace(" ", r"\040")
        system = f"cgroup cgroup rw,{controllers}" if controllers else "cgroup2 cgroup2 rw,nsdelegate"
        mounts.append(f"31 23 0:28 {root} {escaped} rw,relatime shared:4 - {system}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    (folder / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    return folder


def group(folder: Path, **files: Any) -> Path:
    """Create a group's folder; `memory_max=5` writes 5 to memory.max."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")
    return folder


def test_no_limit_without_control_groups(tmp_path: Path) -> None:
    assert (cpu_quota(tmp_path / "nowhere"), available_memory(tmp_path / "nowhere")) == (None, None)
    mount = group(tmp_path / "mount")  # the root group of a whole machine has no such files
    proc = process(tmp_path / "proc", ("", "/", "/", mount))
    assert (cpu_quota(proc), available_memory(proc)) == (None, None)


def test_limits_of_a_version_2_container(tmp_path: Path) -> None:
    stat = "anon 5\nfile 7\ninactive_file 52428800\nactive_file 9"
    mount = group(
        tmp_path / "mount", cpu_max="150000 100000", memory_max=400 * MIB, memory_current=300 * MIB, memory_stat=stat
    )
    proc = process(tmp_path / "proc", ("", "/", "/", mount))
    assert cpu_quota(proc) == 1.5
    assert available_memory(proc) == 150 * MIB  # 50 of the 300 MiB in use are page cache


def test_throttled_time_is_that_of_the_group_with_the_quota(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    group(mount / "pod", cpu_stat="usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000")
    group(mount / "pod" / "container", cpu_stat="usage_usec 9\nnr_throttled 0\nthrottled_usec 0")
    assert throttled_seconds(process(tmp_path / "new", ("", "/pod/container", "/", mount))) == 2.5
    old = group(tmp_path / "cpu", cpu_stat="nr_periods 7\nnr_throttled 3\nthrottled_time 1500000000")
    assert throttled_seconds(process(tmp_path / "old", ("cpu", "/", "/", old))) == 1.5
    assert throttled_seconds(tmp_path / "nowhere") is None


def test_limits_of_all_ancestor_groups_apply(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    group(mount / "user.slice", cpu_max="200000 100000", memory_max="max", memory_current=900 * MIB)
    group(
        mount / "user.slice" / "job",
        cpu_max="max 100000",
        memory_max=500 * MIB,
        memory_current=100 * MIB,
        memory_stat="inactive_file 0",
    )
    group(mount / "user.slice" / "job" / "step", cpu_max="400000 100000", memory_max="max", memory_current=7)
    group(mount / "other", cpu_max="1000 100000", memory_max=1, memory_current=1)  # not an ancestor
    proc = process(tmp_path / "proc", ("", "/user.slice/job/step", "/", mount))
    assert cpu_quota(proc) == 2
    assert available_memory(proc) == 400 * MIB


def test_version_1_has_one_hierarchy_per_controller(tmp_path: Path) -> None:
    cpu, memory = tmp_path / "cpu,cpuacct", tmp_path / "memory"
    group(cpu / "docker" / "abc", cpu_cfs_quota_us=-1, cpu_cfs_period_us=100000)
    group(cpu / "docker", cpu_cfs_quota_us=250000, cpu_cfs_period_us=100000)
    group(
        memory / "docker" / "abc",
        memory_limit_in_bytes=V1_NO_LIMIT,
        memory_usage_in_bytes=MIB,
        memory_stat="inactive_file 0",
    )
    group(
        memory / "docker",
        memory_limit_in_bytes=200 * MIB,
        memory_usage_in_bytes=190 * MIB,
        memory_stat=f"inactive_file 0\ntotal_inactive_file {40 * MIB}",
    )
    unified = group(tmp_path / "unified")  # the version 2 hierarchy of a hybrid system has no controllers
    proc = process(
        tmp_path / "proc",
        ("", "/", "/", unified),
        ("cpu,cpuacct", "/docker/abc", "/", cpu),
        ("memory", "/docker/abc", "/", memory),
        ("cpuset", "/", "/", tmp_path / "cpuset"),
    )
    assert cpu_quota(proc) == 2.5
    assert available_memory(proc) == 50 * MIB


@pytest.mark.parametrize(
    ("own", "root"),
    [("/docker/abc", "/docker/abc"), ("/elsewhere", "/docker/abc"), ("/../other", "/"), ("/docker/gone", "/")],
    ids=["mounted from the host", "outside the mounted group", "outside the namespace", "folder missing"],
)
def test_mounted_group_counts_if_the_own_group_is_not_visible(own: str, root: str, tmp_path: Path) -> None:
    mount = group(tmp_path / "with space", memory_max=9 * MIB, memory_current=4 * MIB)
    group(tmp_path / "other", memory_max=0, memory_current=0)
    assert available_memory(process(tmp_path / "proc", ("", own, root, mount))) == 5 * MIB


def test_no_memory_is_available_above_the_limit(tmp_path: Path) -> None:
    mount = group(tmp_path / "mount", memory_max=5, memory_current=9, memory_stat="inactive_file 1")
    assert available_memory(process(tmp_path / "proc", ("", "/", "/", mount))) == 0
