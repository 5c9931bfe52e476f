"""Readings of one GPU, complete and with parts missing."""

from __future__ import annotations

import inspect
from typing import Any

import pynvml
import pytest

from polybench.machine.meters.nvml import THROTTLE_REASON_NAMES, Gpu, Nvml
from polybench.machine.meters.usage import GpuSample
from tests.machine.meters.fake_nvml import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeNvml,
    RunningProcess,
    h100,
    v100,
)

PID, OTHER_WORKER, OTHER_PROCESS = 4321, 4322, 999
MIB = 1 << 20
FUNCTIONS = [name for name, value in vars(Nvml).items() if name.startswith("nvml") and callable(value)]


def sample(fake: FakeNvml, gpu_workers: tuple[int, ...] = (PID,)) -> tuple[GpuSample, dict[str, str]]:
    failures: dict[str, str] = {}
    return Gpu(fake, 0).sample(PID, gpu_workers, failures), failures


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pynvml_has_every_function_with_the_same_parameters(name: str) -> None:
    expected = list(inspect.signature(getattr(Nvml, name)).parameters)[1:]
    real = list(inspect.signature(getattr(pynvml, name)).parameters.values())
    assert [parameter.name for parameter in real[: len(expected)]] == expected
    assert all(parameter.default is not parameter.empty for parameter in real[len(expected) :])


def test_pynvml_has_every_constant_with_the_same_meaning() -> None:
    fake: Any = FakeNvml()
    for name in (name for name in Nvml.__annotations__ if name != "NVMLError"):
        assert getattr(pynvml, name) == getattr(fake, name)
    assert issubclass(pynvml.NVMLError_NotSupported, pynvml.NVMLError)
    assert str(pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)) == str(NOT_SUPPORTED)
    bits = {"ApplicationsClocksSetting", "SwPowerCap", "HwSlowdown", "SyncBoost", "SwThermalSlowdown"}
    bits |= {"HwThermalSlowdown", "HwPowerBrakeSlowdown"}
    assert {getattr(pynvml, f"nvmlClocksThrottleReason{name}") for name in bits} == set(THROTTLE_REASON_NAMES)


def test_readings_of_an_h100_are_in_si_units() -> None:
    card = h100()
    card.running = [RunningProcess(PID, 1822 * MIB), RunningProcess(OTHER_WORKER, 700 * MIB)]
    found, failures = sample(FakeNvml(card), (PID, OTHER_WORKER))
    assert found == GpuSample(
        gpu_percent=96, power=pytest.approx(512.304), sm_clock=1980, memory_clock=2619, temperature=61,
        throttle_reasons=0, memory_bytes=1822 * MIB, other_processes=0,
    )  # fmt: skip
    assert failures == {}


@pytest.mark.parametrize(
    ("refused", "field", "reading"),
    [
        ("UtilizationRates", "gpu_percent", "utilization"),
        ("PowerUsage", "power", "power"),
        ("ClockInfo", "sm_clock", "clocks"),
        ("Temperature", "temperature", "temperature"),
        ("ComputeRunningProcesses", "memory_bytes", "processes"),
    ],
)
@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION])
def test_refused_reading_is_empty_and_reported(refused: str, field: str, reading: str, error: Exception) -> None:
    card = v100()
    card.running = [RunningProcess(PID, 512 * MIB)]
    found, failures = sample(FakeNvml(card, refuse={refused: error}))
    assert getattr(found, field) is None
    assert failures == {reading: str(error)}
    rest = {"gpu_percent", "power", "sm_clock", "temperature", "throttle_reasons", "memory_bytes"} - {field}
    assert all(getattr(found, name) is not None for name in rest)


def test_old_driver_reports_throttling_under_the_old_name() -> None:
    card = v100()
    card.reasons = 0x4
    found, failures = sample(FakeNvml(card, refuse={"ClocksEventReasons": FUNCTION_NOT_FOUND}))
    assert found.throttle_reasons == 0x4
    assert failures == {}
    both = {"ClocksEventReasons": FUNCTION_NOT_FOUND, "ClocksThrottleReasons": NOT_SUPPORTED}
    found, failures = sample(FakeNvml(card, refuse=both))
    assert found.throttle_reasons is None
    assert failures == {"throttling": "Not Supported"}


def test_processes_of_other_programs_are_counted() -> None:
    card = v100()
    card.running = [RunningProcess(PID, 512 * MIB), RunningProcess(OTHER_PROCESS, 80 * MIB)]
    assert sample(FakeNvml(card))[0].other_processes == 1


@pytest.mark.parametrize(
    ("running", "other_processes"),
    [
        ([], None),
        ([RunningProcess(OTHER_PROCESS, 512 * MIB)], None),  # in a container: the host's ID of the worker
        ([RunningProcess(PID, None)], 0),
        ([RunningProcess(PID, 0)], 0),  # in a container, since driver 560
    ],
)
def test_memory_is_unknown_if_not_reported_by_process(
    running: list[RunningProcess], other_processes: int | None
) -> None:
    card = v100()
    card.running = running
    found, failures = sample(FakeNvml(card))
    assert found.memory_bytes is None
    assert found.other_processes == other_processes
    assert failures == {}


def test_used_memory_of_the_device_is_read() -> None:
    fake = FakeNvml()
    assert Gpu(fake, 0).used_bytes() == v100().used
    fake.refuse["MemoryInfo"] = NO_PERMISSION
    assert Gpu(fake, 0).used_bytes() is None
