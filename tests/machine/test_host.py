"""Description of the host."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from polybench.errors import __version__
from polybench.machine import cgroups, cores, host


def test_host_description_has_plausible_values() -> None:
    this = host.this_host()
    assert this.cpu
    assert this.cores >= 1
    assert this.threads >= this.cores
    assert this.memory_bytes > 1 << 28
    assert this.os.startswith("Linux")


def test_tool_version_is_polybenchs() -> None:
    tool = host.tool_version()
    assert tool.version == __version__


def test_installed_package_has_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "__file__", str(tmp_path / "polybench" / "machine" / "host.py"))
    assert host.tool_version.__wrapped__().commit is None


@pytest.mark.parametrize(
    ("physical", "affinity", "quota", "expected"),
    [(8, 16, None, 8), (8, 4, None, 4), (8, 8, 2.0, 2), (8, 8, 2.9, 2), (8, 8, 0.5, 1), (None, 4, None, 1)],
)
def test_usable_threads_are_the_minimum_of_all_limits(
    physical: int | None, affinity: int, quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "physical_cores", list)  # as if the kernel did not describe them
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: physical)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    monkeypatch.setattr(cgroups, "cpu_quota", lambda: quota)
    assert host.usable_threads() == expected


def test_hyper_threads_of_one_core_count_as_one_usable_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    one = cores.Core((1, 5), has_cpu0=False, package=0, node=0, capacity=1024)
    monkeypatch.setattr(cores, "physical_cores", lambda: [one])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5})
    monkeypatch.setattr(cgroups, "cpu_quota", lambda: None)
    assert host.usable_threads() == 1


@pytest.mark.parametrize(("left", "expected"), [(None, 1000), (600, 600), (2000, 1000)])
def test_available_memory_is_limited_by_the_control_groups(
    left: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(cgroups, "available_memory", lambda: left)
    assert host.available_memory() == expected
