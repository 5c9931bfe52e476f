"""Availability of meters, as `doctor` prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.machine.meters import availability
from polybench.machine.meters.availability import Availability
from tests.machine.meters.conftest import Install
from tests.machine.meters.simulated_driver import ENERGY
from tests.machine.meters.test_rapl import domain


def test_rapl_is_available_if_a_package_is_readable(tmp_path: Path) -> None:
    assert availability.rapl(tmp_path).reason
    domain(tmp_path, "intel-rapl:0", "package-0")
    assert availability.rapl(tmp_path) == Availability(True, "energy of the processor (package-0)")


def test_each_gpu_has_an_energy_counter_or_a_reason(driver_with: Install) -> None:
    driver = driver_with("v100", "h100")
    assert [one.available for one in availability.gpus()] == [True, True, True]
    assert "H100" in availability.gpus()[2].meter
    driver.refuse[ENERGY] = "NOT_SUPPORTED"
    nvml, *counters = availability.gpus()
    assert nvml.available
    assert all("Not Supported" in (counter.reason or "") for counter in counters)
    assert driver.sessions == 0


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "NO_PERMISSION"])
def test_missing_driver_is_reported_with_a_hint(driver_with: Install, error: str) -> None:
    driver_with(nvmlInitWithFlags=error)
    (one,) = availability.gpus()
    assert not one.available
    assert one.reason in ("NVML: Driver Not Loaded", "NVML: Insufficient Permissions")
    assert one.hint
