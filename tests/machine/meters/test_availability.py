"""Availability of meters, as `doctor` prints it."""

from __future__ import annotations

from pathlib import Path

from polybench.machine.meters import availability
from polybench.machine.meters.availability import Availability
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


def test_rapl_is_available_if_a_package_is_readable(tmp_path: Path) -> None:
    assert availability.rapl(tmp_path).reason
    domain(tmp_path, "intel-rapl:0", "package-0")
    assert availability.rapl(tmp_path) == Availability(True, "energy of the processor (package-0)")


def test_each_gpu_has_an_energy_counter_or_a_reason(install: Install) -> None:
    fake = install(FakeNvml(v100(), h100()))
    assert [one.available for one in availability.gpus()] == [True, True, True]
    assert "H100" in availability.gpus()[2].meter
    fake.refuse["TotalEnergyConsumption"] = NOT_SUPPORTED
    nvml, *counters = availability.gpus()
    assert nvml.available
    assert all("Not Supported" in (counter.reason or "") for counter in counters)
    assert fake.sessions == 0


def test_missing_driver_is_reported_with_a_hint(install: Install) -> None:
    for error in (LIBRARY_NOT_FOUND, NO_PERMISSION):
        install(FakeNvml(refuse={"Init": error}))
        (one,) = availability.gpus()
        assert not one.available
        assert str(error) in (one.reason or "")
        assert one.hint
