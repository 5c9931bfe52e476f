"""Readings of blocks -> what a row says."""

from __future__ import annotations

from typing import Any

import pytest

from polybench.core.document.resources import Energy, Memory, Utilization
from polybench.core.document.result import Result
from polybench.machine.meters.usage import BlockUsage, GpuSample, GpuUsage
from polybench.report.usage import BY_DIFFERENCE, BY_PROCESS, add_usage
from tests.factories import measured

EPOCH_SECONDS = 10.0


def row(device: str, *blocks: BlockUsage, freed: int | None = None) -> Result:
    result = measured(f"torch/{device}", 0.0165)
    result.epoch_seconds = EPOCH_SECONDS
    add_usage(result, blocks, freed)
    return result


def look(**changes: Any) -> GpuSample:
    fields = {"gpu_percent": 80.0, "power": 200.0, "sm_clock": 1500.0, "memory_clock": 877.0}
    fields |= {"temperature": 50.0, "throttle": 0, "memory_bytes": 500, "others": 0}
    return GpuSample(**(fields | changes))  # type: ignore[arg-type]


def gpu_block(*samples: GpuSample, joules: float | None = 300.0, **changes: Any) -> BlockUsage:
    return BlockUsage(2.0, 1.0, gpu=GpuUsage(1.5, joules, list(samples)), **changes)


def test_cpu_time_and_power_are_means_over_the_time_of_all_blocks() -> None:
    result = row("cpu", BlockUsage(1.0, 2.0, {"package-0": 40.0}), BlockUsage(3.0, 3.0, {"package-0": 40.0}))
    assert result.utilization == Utilization(cpu_percent=125.0, cores_used=1.25, power=20.0)
    assert result.energy == Energy(200.0, "RAPL package-0")
    assert result.memory == Memory(peak_rss_bytes=412 << 20)
    assert result.warnings == []


def test_blocks_that_were_not_read_do_not_dilute_the_power() -> None:
    failed = BlockUsage(1.0, 1.0, failures={"energy of the processor": "RAPL: gone"})
    both = BlockUsage(2.0, 1.0, {"package-0": 40.0, "package-1": 20.0})
    result = row("cpu", both, failed, failed)
    assert result.energy == Energy(300.0, "RAPL package-0+package-1")
    assert result.warnings == ["not read: energy of the processor (RAPL: gone)"]


def test_without_a_counter_there_is_no_energy_and_no_word_about_it() -> None:
    result = row("cpu", BlockUsage(1.0, 0.5))
    assert result.energy == Energy()
    assert result.utilization == Utilization(cpu_percent=50.0, cores_used=0.5)
    assert result.warnings == []


def test_a_gpu_row() -> None:
    hot = look(gpu_percent=90.0, temperature=58.0, sm_clock=1400.0, memory_bytes=700)
    result = row("cuda", gpu_block(look(), hot), gpu_block(look(gpu_percent=100.0), joules=600.0))
    assert result.utilization == Utilization(
        cpu_percent=50.0, cores_used=0.5, gpu_percent=90.0, power=300.0,
        clocks={"sm": pytest.approx(1466.7, abs=0.1), "memory": 877.0}, temperature=58.0, throttle=[],
    )  # fmt: skip
    assert result.energy == Energy(3000.0, "NVML energy counter, GPU only")
    assert (result.memory.device_nvml_bytes, result.memory.device_nvml_source) == (700, BY_PROCESS)
    assert result.memory.peak_rss_bytes == 412 << 20
    assert result.warnings == []


def test_gpu_and_processor_together() -> None:
    result = row("cuda", gpu_block(look(), joules=None, package_joules={"package-0": 20.0}))
    assert result.energy == Energy(2100.0, "NVML power and RAPL package-0")
    assert result.utilization.power == 200.0  # the GPU's


def test_the_driver_s_word_of_the_process_goes_before_a_difference() -> None:
    assert row("cuda", gpu_block(look()), freed=900).memory.device_nvml_bytes == 500
    memory = row("cuda", gpu_block(look(memory_bytes=None)), freed=900).memory
    assert (memory.device_nvml_bytes, memory.device_nvml_source) == (900, BY_DIFFERENCE)


def test_memory_that_nothing_tells_is_a_warning() -> None:
    result = row("cuda", gpu_block(look(memory_bytes=None)))
    assert result.memory.device_nvml_bytes is None
    assert result.warnings == ["not read: device memory (NVML tells it neither by process nor by difference)"]


def test_throttling_and_strangers_are_warnings() -> None:
    slow, asked_for = look(throttle=0x4 | 0x20), look(throttle=0x2)
    result = row("cuda", gpu_block(slow, look()), gpu_block(asked_for), gpu_block(look(others=1)))
    assert result.warnings == [
        "the GPU was throttled in 1 of 3 blocks: power cap, thermal (software)",
        "another process was on the GPU in 1 of 3 blocks",
    ]
    assert result.utilization.throttle == ["application clocks", "power cap", "thermal (software)"]


def test_what_was_not_read_is_said_once_for_each_reason() -> None:
    lost = GpuUsage(failures={"power": "GPU is lost", "clocks": "GPU is lost", "energy": "Not Supported"})
    blocks = [BlockUsage(1.0, 1.0, gpu=lost), BlockUsage(1.0, 1.0, gpu=lost)]
    result = row("cuda", *blocks)
    assert result.warnings == ["not read: power, clocks (GPU is lost)", "not read: energy (Not Supported)"]
    assert result.utilization == Utilization(cpu_percent=100.0, cores_used=1.0)
    assert result.energy == Energy()
    assert result.memory.device_nvml_bytes is None
