"""On what a study ran."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from polybench.core.version import __version__
from polybench.machine import host


def test_the_host_is_described() -> None:
    this = host.this_host()
    assert this.cpu
    assert this.cores >= 1
    assert this.threads >= this.cores
    assert this.memory_bytes > 1 << 28
    assert this.os.startswith("Linux")


def test_the_version_and_the_commit() -> None:
    tool = host.tool()
    assert tool.version == __version__


def test_an_installed_package_has_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "__file__", str(tmp_path / "polybench" / "machine" / "host.py"))
    assert host.tool().commit is None


def limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, cores: int | None, affinity: int, quota: str | None
) -> int:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr(host, "_CGROUP_QUOTA", file)
    return host.usable_threads()


@pytest.mark.parametrize(
    ("cores", "affinity", "quota", "expected"),
    [
        (8, 16, None, 8),
        (8, 4, "max 100000", 4),
        (8, 8, "200000 100000", 2),
        (8, 8, "50000 100000", 1),
        (None, 4, None, 1),
    ],
)
def test_usable_threads_are_the_least_limit(
    cores: int | None,
    affinity: int,
    quota: str | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert limits(monkeypatch, tmp_path, cores=cores, affinity=affinity, quota=quota) == expected


def test_available_memory_respects_the_cgroup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    file = tmp_path / "memory.max"
    monkeypatch.setattr(host, "_CGROUP_MEMORY", file)
    assert host.available_memory() == 1000
    file.write_text("max\n")
    assert host.available_memory() == 1000
    file.write_text("600\n")
    assert host.available_memory() == 600
