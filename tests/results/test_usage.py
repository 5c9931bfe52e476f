"""Tests of the summary of resource usage of timing blocks."""

from __future__ import annotations

from typing import Any

import pytest

from polybench.machine.meters.gpu import GpuSample, GpuUsage
from polybench.machine.meters.observer import BlockUsage
from polybench.results.comparisons import device_count
from polybench.results.usage import NVML_BY_DIFFERENCE, NVML_BY_PROCESS, summarize_usage
from polybench.schema.resources import Energy, Memory, Utilization
from polybench.schema.result import Result
from tests.factories import measured

EPOCH_SECONDS = 10.0


def result_with(device: str, *blocks: BlockUsage, freed: int | None = None) -> Result:
    result = measured(f"torch/{device}", 0.0165)
    result.epoch_seconds = EPOCH_SECONDS
    usage = summarize_usage(
        blocks,
        device,
        result.memory,
        epoch_seconds=EPOCH_SECONDS,
        device_count=device_count(result),
        gpu_bytes_freed=freed,
    )
    result.utilization, result.energy, result.memory, result.warnings = usage
    return result


def gpu_sample(**changes: Any) -> GpuSample:
    fields = {"gpu_percent": 80.0, "power": 200.0, "sm_clock": 1500.0, "memory_clock": 877.0}
    fields |= {"temperature": 50.0, "throttle_reasons": 0, "memory_bytes": 500, "other_processes": 0}
    return GpuSample(**(fields | changes))  # type: ignore[arg-type]


def gpu_block(*samples: GpuSample, joules: float | None = 300.0, **changes: Any) -> BlockUsage:
    return BlockUsage(2.0, 1.0, gpu=GpuUsage(1.5, joules, list(samples)), **changes)


def test_cpu_time_and_power_are_means_over_all_blocks() -> None:
    result = result_with("cpu", BlockUsage(1.0, 2.0, {"package-0": 40.0}), BlockUsage(3.0, 3.0, {"package-0": 40.0}))
    assert result.utilization == Utilization(cpu_percent=125.0, cores_used=1.25, power=20.0)
    assert result.energy == Energy(200.0, "RAPL package-0")
    assert result.memory == Memory(peak_rss_bytes=412 << 20)
    assert result.warnings == []


def test_unread_blocks_do_not_change_the_mean_power() -> None:
    failed = BlockUsage(1.0, 1.0, failures={"energy of the processor": "RAPL: gone"})
    both = BlockUsage(2.0, 1.0, {"package-0": 40.0, "package-1": 20.0})
    result = result_with("cpu", both, failed, failed)
    assert result.energy == Energy(300.0, "RAPL package-0+package-1")
    assert result.warnings == ["cannot read energy of the processor (RAPL: gone)"]


def test_missing_energy_counter_causes_no_warning() -> None:
    result = result_with("cpu", BlockUsage(1.0, 0.5))
    assert result.energy == Energy()
    assert result.utilization == Utilization(cpu_percent=50.0, cores_used=0.5)
    assert result.warnings == []


def test_usage_of_a_gpu() -> None:
    hot = gpu_sample(gpu_percent=90.0, temperature=58.0, sm_clock=1400.0, memory_bytes=700)
    result = result_with("cuda", gpu_block(gpu_sample(), hot), gpu_block(gpu_sample(gpu_percent=100.0), joules=600.0))
    assert result.utilization == Utilization(
        cpu_percent=50.0, cores_used=0.5, gpu_percent=90.0, power=300.0,
        clocks={"sm": pytest.approx(1466.7, abs=0.1), "memory": 877.0}, temperature=58.0, throttle_reasons=[],
    )  # fmt: skip
    assert result.energy == Energy(3000.0, "NVML energy counter, GPU only")
    assert (result.memory.device_nvml_bytes, result.memory.device_nvml_source) == (700, NVML_BY_PROCESS)
    assert result.memory.peak_rss_bytes == 412 << 20
    assert result.warnings == []


def test_energy_of_gpu_and_cpu_is_added() -> None:
    result = result_with("cuda", gpu_block(gpu_sample(), joules=None, package_joules={"package-0": 20.0}))
    assert result.energy == Energy(2100.0, "NVML power and RAPL package-0")
    assert result.utilization.power == 200.0  # only the GPU's


def test_memory_by_process_is_preferred_to_the_difference() -> None:
    assert result_with("cuda", gpu_block(gpu_sample()), freed=900).memory.device_nvml_bytes == 500
    memory = result_with("cuda", gpu_block(gpu_sample(memory_bytes=None)), freed=900).memory
    assert (memory.device_nvml_bytes, memory.device_nvml_source) == (900, NVML_BY_DIFFERENCE)


def test_unknown_device_memory_causes_a_warning() -> None:
    result = result_with("cuda", gpu_block(gpu_sample(memory_bytes=None)))
    assert result.memory.device_nvml_bytes is None
    assert result.warnings == ["cannot read device memory (NVML reports it neither by process nor by difference)"]


def test_throttling_and_other_processes_cause_warnings() -> None:
    slow, requested = gpu_sample(throttle_reasons=0x4 | 0x20), gpu_sample(throttle_reasons=0x2)
    result = result_with(
        "cuda", gpu_block(slow, gpu_sample()), gpu_block(requested), gpu_block(gpu_sample(other_processes=1))
    )
    assert result.warnings == [
        "the GPU was throttled in 1 of 3 timing blocks: power cap, thermal (software)",
        "another process used the GPU in 1 of 3 timing blocks",
    ]
    assert result.utilization.throttle_reasons == ["application clocks", "power cap", "thermal (software)"]


def test_each_reason_of_a_failed_reading_is_reported_once() -> None:
    lost = GpuUsage(failures={"power": "GPU is lost", "clocks": "GPU is lost", "energy": "Not Supported"})
    blocks = [BlockUsage(1.0, 1.0, gpu=lost), BlockUsage(1.0, 1.0, gpu=lost)]
    result = result_with("cuda", *blocks)
    assert result.warnings == ["cannot read power, clocks (GPU is lost)", "cannot read energy (Not Supported)"]
    assert result.utilization == Utilization(cpu_percent=100.0, cores_used=1.0)
    assert result.energy == Energy()
    assert result.memory.device_nvml_bytes is None


def test_the_energy_of_several_gpus_is_unknown() -> None:
    """The meters read only the first one."""
    blocks = [gpu_block(gpu_sample())]
    one, two = (
        summarize_usage(blocks, "cuda", Memory(), epoch_seconds=EPOCH_SECONDS, device_count=count).energy
        for count in (1, 2)
    )
    assert one.joules_per_epoch == pytest.approx(EPOCH_SECONDS * 200)
    assert two == Energy()
