"""On what a study ran."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import polybench
from polybench import provenance


def test_the_host_is_described() -> None:
    host = provenance.host()
    assert host.cpu
    assert host.cores >= 1
    assert host.threads >= host.cores
    assert host.memory_bytes > 1 << 28
    assert host.os.startswith("Linux")


def test_the_version_and_the_commit() -> None:
    tool = provenance.tool()
    assert tool.version == polybench.__version__


def test_an_installed_package_has_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(polybench, "__file__", str(tmp_path / "polybench" / "__init__.py"))
    assert provenance.tool().commit is None


def limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, cores: int | None, affinity: int, quota: str | None
) -> int:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr(provenance, "_CGROUP_QUOTA", file)
    return provenance.usable_threads()


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
    monkeypatch.setattr(provenance, "_CGROUP_MEMORY", file)
    assert provenance.available_memory() == 1000
    file.write_text("max\n")
    assert provenance.available_memory() == 1000
    file.write_text("600\n")
    assert provenance.available_memory() == 600
