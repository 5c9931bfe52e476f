"""Readings of simulated cards through the real pynvml: units, errors, missing readings, and CUDA's device numbers."""

from __future__ import annotations

import pynvml
import pytest

from polybench.machine.meters.gpu import THROTTLE_REASON_NAMES, Gpu, GpuSample, nvml_index
from tests.machine.meters.conftest import Install
from tests.machine.meters.simulated_driver import JOULES_PER_READING, PROCESSES, process

PID, OTHER_WORKER, OTHER_PROCESS = 4321, 4322, 999
MIB = 1 << 20


READINGS = (
    ("h100", GpuSample(96, 512.304, 1980, 2619, 61, 4, 1_910_505_472, 1), {}, 9_876_543.21, 5_520_809_984),
    ("gtx_1080", GpuSample(87, 171.25, 1847, 4513, 74, 0x20, None, 0), {}, None, 2_513_978_368),
    (
        "laptop",
        GpuSample(55, None, 1395, 5001, 66, 0, None, None),
        {"power": "Not Supported", "processes": "Insufficient Permissions"},
        None,
        1_000_000_000,
    ),
    (
        "a100_mig",
        GpuSample(None, 68.041, 1095, 1215, 38, 1, None, None),
        {"utilization": "Not Supported"},
        123_456.789,
        None,
    ),
)
"""Card, its sample, refused readings with the reason, joules, used bytes."""


def sample(gpu_workers: tuple[int, ...] = (PID,)) -> tuple[GpuSample, dict[str, str]]:
    failures: dict[str, str] = {}
    return Gpu(0).sample(PID, gpu_workers, failures), failures


@pytest.mark.parametrize(("card", "readings", "missing", "joules", "used"), READINGS)
def test_readings_of_a_card_are_in_si_units_and_missing_ones_have_a_reason(
    driver_with: Install, card: str, readings: GpuSample, missing: dict[str, str], joules: float | None, used: int
) -> None:
    driver_with(card)
    assert sample() == (readings, missing)
    assert Gpu(0).used_bytes() == used
    failures: dict[str, str] = {}
    gpu = Gpu(0)
    assert gpu.joules(failures) == (joules and pytest.approx(joules))
    assert failures == ({} if joules else {"energy": "Not Supported"})
    if joules:
        assert gpu.joules(failures) == pytest.approx(joules + JOULES_PER_READING)


@pytest.mark.parametrize(
    ("function", "field", "reading"),
    [
        ("nvmlDeviceGetUtilizationRates", "gpu_percent", "utilization"),
        ("nvmlDeviceGetPowerUsage", "power", "power"),
        ("nvmlDeviceGetClockInfo", "sm_clock", "clocks"),
        ("nvmlDeviceGetTemperature", "temperature", "temperature"),
        (PROCESSES, "memory_bytes", "processes"),
    ],
)
def test_refused_reading_is_empty_and_reported(driver_with: Install, function: str, field: str, reading: str) -> None:
    driver_with("h100", **{function: "NO_PERMISSION"})
    found, failures = sample()
    assert getattr(found, field) is None
    assert list(failures) == [reading]
    rest = {"gpu_percent", "power", "sm_clock", "temperature", "throttle_reasons", "memory_bytes"} - {field}
    assert all(getattr(found, name) is not None for name in rest)


def test_throttle_reasons_have_the_bits_of_the_driver() -> None:
    bits = {"ApplicationsClocksSetting", "SwPowerCap", "HwSlowdown", "SyncBoost", "SwThermalSlowdown"}
    bits |= {"HwThermalSlowdown", "HwPowerBrakeSlowdown"}
    assert {getattr(pynvml, f"nvmlClocksThrottleReason{name}") for name in bits} == set(THROTTLE_REASON_NAMES)


@pytest.mark.parametrize(
    ("running", "memory_bytes", "other_processes"),
    [
        ([process(PID, 512 * MIB), process(OTHER_WORKER, 80 * MIB)], 512 * MIB, 0),
        ([process(PID, 512 * MIB), process(OTHER_PROCESS, 80 * MIB)], 512 * MIB, 1),
        ([], None, None),
        ([process(OTHER_PROCESS, 512 * MIB)], None, None),  # in a container: the host's ID of the worker
        ([process(PID, 0)], None, 0),  # in a container, since driver 560
    ],
)
def test_memory_is_the_workers_and_processes_of_other_programs_are_counted(
    driver_with: Install, running: list[dict[str, int]], memory_bytes: int | None, other_processes: int | None
) -> None:
    driver_with("v100").cards[0][PROCESSES] = running
    found, failures = sample((PID, OTHER_WORKER))
    assert (found.memory_bytes, found.other_processes, failures) == (memory_bytes, other_processes, {})


UUIDS = ("GPU-8932f937-d72c", "GPU-1c9d2b4e-52a6", "GPU-1c9d7777-0000")
SAME = ("Tesla V100",) * 3
MIXED = ("Tesla T4", "Tesla V100", "Tesla V100")


@pytest.mark.parametrize(
    ("device", "visible", "expected"),
    [
        ("cuda", None, 0),
        ("cuda:2", None, 2),
        ("cuda", "1,0", 1),
        ("cuda:1", "1, 0", 0),
        ("cuda", "GPU-1c9d2b4e-52a6", 1),
        ("cuda", "GPU-1c9d2", 1),
        ("cuda:1", "GPU-1c9d7777-0000,GPU-8932f937", 0),
        ("cuda:3", None, "not among the visible"),
        ("cuda", "", "not among the visible"),
        ("cuda:1", "0,-1,1", "not among the visible"),
        ("cuda", "3", "not among the visible"),
        ("cuda", "7", "not among the visible"),
        ("cuda", "GPU-1c9d", "not among the visible"),  # ambiguous prefix
        ("cuda", "MIG-1c9d2b4e", "MIG"),
    ],
)
def test_visible_devices_are_found_by_index_and_by_uuid(device: str, visible: str | None, expected: int | str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    if isinstance(expected, int):
        assert nvml_index(device, environment, UUIDS, SAME) == expected
    else:
        with pytest.raises(LookupError, match=expected):
            nvml_index(device, environment, UUIDS, SAME)


def test_different_gpus_need_the_order_of_the_bus() -> None:
    with pytest.raises(LookupError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        nvml_index("cuda:1", {}, UUIDS, MIXED)
    assert nvml_index("cuda:1", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, UUIDS, MIXED) == 1
    assert nvml_index("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-1c9d2"}, UUIDS, MIXED) == 1
