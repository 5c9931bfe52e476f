"""RAPL counters, in a folder like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.machine.meters.observer import Observer
from polybench.machine.meters.rapl import Package, Rapl

RANGE = 262_143_328_850  # of a Xeon


def domain(powercap: Path, folder: str, name: str, microjoules: int = 0) -> Path:
    path = powercap / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    return path


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    (tmp_path / "intel-rapl").mkdir()  # the control type is listed among its domains
    domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    domain(tmp_path, "intel-rapl:0:0", "core", 600_000)
    domain(tmp_path, "intel-rapl:1", "package-1", RANGE - 500_000)
    domain(tmp_path, "intel-rapl:2", "psys", 9_000_000)
    domain(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_000)
    return tmp_path


def test_only_packages_are_read_each_once(powercap: Path) -> None:
    rapl = Rapl(powercap)
    assert [package.name for package in rapl.packages] == ["package-0", "package-1"]
    assert rapl.problem is None
    start = rapl.read()
    (powercap / "intel-rapl:0" / "energy_uj").write_text("3500000\n")
    (powercap / "intel-rapl:1" / "energy_uj").write_text("250000\n")
    assert rapl.joules(start, rapl.read()) == pytest.approx({"package-0": 2.5, "package-1": 0.75})


@given(start=st.integers(0, RANGE), used=st.integers(0, RANGE - 1))
def test_counter_wrap_around_loses_nothing(start: int, used: int) -> None:
    package = Package("package-0", Path(), RANGE)
    end = start + used if start + used <= RANGE else start + used - RANGE
    assert package.joules(start, end) == pytest.approx(used / 1e6, abs=1e-6)


def test_machine_without_the_counter_has_no_warning(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        rapl = Rapl(folder)
        assert rapl.packages == []
        assert "no processor package" in (rapl.problem or "")
        assert Observer({"cpu"}, powercap=folder).warnings == []


def test_missing_permission_is_one_warning_with_its_fix(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # root may read files without permission

        def refuse(self: Package) -> int:
            raise PermissionError(13, "Permission denied", str(self.counter))

        monkeypatch.setattr(Package, "read", refuse)
    (powercap / "intel-rapl:0" / "energy_uj").chmod(0)
    (warning,) = Observer({"cpu"}, powercap=powercap).warnings
    assert "no permission" in warning
    assert "sudo chmod a+r" in warning


def test_counter_that_disappears_leaves_only_the_energy_empty(powercap: Path) -> None:
    observer = Observer({"cpu"}, powercap=powercap)
    with observer.watch_block(os.getpid(), "cpu", []) as usage:
        (powercap / "intel-rapl:1" / "energy_uj").unlink()
    assert usage.package_joules == {}
    assert "energy_uj" in usage.failures["energy of the processor"]
    assert usage.wall_seconds > 0


def test_block_has_its_energy(powercap: Path) -> None:
    with Observer({"cpu"}, powercap=powercap).watch_block(os.getpid(), "cpu", []) as usage:
        (powercap / "intel-rapl:0" / "energy_uj").write_text("4000000\n")
    assert usage.package_joules == pytest.approx({"package-0": 3.0, "package-1": 0.0})
    assert usage.failures == {}
