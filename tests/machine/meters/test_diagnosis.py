"""What `doctor` says of meters."""

from __future__ import annotations

from pathlib import Path

from polybench.machine.meters import diagnosis
from polybench.machine.meters.diagnosis import Finding
from tests.machine.meters.conftest import Install
from tests.machine.meters.fake_nvml import (
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeNvml,
    h100,
    v100,
)
from tests.machine.meters.test_rapl import domain


def test_rapl(tmp_path: Path) -> None:
    assert diagnosis.rapl(tmp_path).reason
    domain(tmp_path, "intel-rapl:0", "package-0")
    assert diagnosis.rapl(tmp_path) == Finding(True, "energy of the processor (package-0)")


def test_gpus_with_and_without_an_energy_counter(install: Install) -> None:
    fake = install(FakeNvml(v100(), h100()))
    assert [finding.works for finding in diagnosis.gpus()] == [True, True, True]
    assert "H100" in diagnosis.gpus()[2].what
    fake.refuse["TotalEnergyConsumption"] = NOT_SUPPORTED
    nvml, *counters = diagnosis.gpus()
    assert nvml.works
    assert all("Not Supported" in (counter.reason or "") for counter in counters)
    assert fake.sessions == 0


def test_no_driver(install: Install) -> None:
    for error in (LIBRARY_NOT_FOUND, NO_PERMISSION):
        install(FakeNvml(refuse={"Init": error}))
        (finding,) = diagnosis.gpus()
        assert not finding.works
        assert str(error) in (finding.reason or "")
        assert finding.remedy
