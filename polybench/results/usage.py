"""Summarizes resource usage of timing blocks: utilization, energy, device memory, warnings. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from polybench.machine.meters.gpu import THROTTLE_REASON_NAMES, THROTTLED, GpuSample, GpuUsage
from polybench.machine.meters.observer import BlockUsage
from polybench.schema.resources import Energy, Memory, Utilization

NVML_BY_PROCESS = "NVML, by process ID"
NVML_BY_DIFFERENCE = "NVML, decrease of the device's used memory when the worker ended"


class Power(NamedTuple):
    """Mean power over the blocks, and its source."""

    watts: float
    source: str


class UsageSummary(NamedTuple):
    """Resource usage of a measured configuration."""

    utilization: Utilization
    energy: Energy
    memory: Memory
    warnings: list[str]


def summarize_usage(
    blocks: Sequence[BlockUsage],
    device: str,
    memory: Memory,
    *,
    epoch_seconds: float | None,
    device_count: int = 1,
    gpu_bytes_freed: int | None = None,
) -> UsageSummary:
    """Summarize the usage in all timing blocks, and add it to the memory that the worker has measured.

    The energy of an epoch is the mean power over the blocks times the time of an epoch. A block also contains
    its reset and warm-up steps, which are a small part of it and do similar work. If there are several GPUs,
    the meters read only the first one. `gpu_bytes_freed` is the largest decrease of the GPU's used memory when
    a worker ended.
    """
    gpus = [block.gpu for block in blocks if block.gpu is not None]
    samples = [sample for gpu in gpus for sample in gpu.samples]
    package, gpu = _package_power(blocks), _gpu_power(gpus)
    memory = _memory(memory, samples, gpu_bytes_freed)
    return UsageSummary(
        _utilization(blocks, samples, package if device == "cpu" else gpu),
        _energy(epoch_seconds, gpu, package) if device_count == 1 else Energy(),
        memory,
        list(_warnings(blocks, gpus, bool(gpus) and memory.device_nvml_bytes is None)),
    )


def _utilization(blocks: Sequence[BlockUsage], samples: Sequence[GpuSample], power: Power | None) -> Utilization:
    wall = sum(block.wall_seconds for block in blocks)
    cores = sum(block.cpu_seconds for block in blocks) / wall if wall else None
    clocks = {
        "sm": _mean(sample.sm_clock for sample in samples),
        "memory": _mean(sample.memory_clock for sample in samples),
    }
    bits = [sample.throttle_reasons for sample in samples if sample.throttle_reasons is not None]
    return Utilization(
        cpu_percent=None if cores is None else 100 * cores,
        cores_used=cores,
        gpu_percent=_mean(sample.gpu_percent for sample in samples),
        power=power.watts if power else None,
        clocks={name: clock for name, clock in clocks.items() if clock is not None} or None,
        temperature=max((s.temperature for s in samples if s.temperature is not None), default=None),
        throttle_reasons=_throttle_names(bits) if bits else None,
    )


def _package_power(blocks: Sequence[BlockUsage]) -> Power | None:
    """Return the power of all CPU packages together, since a worker's threads may run on any of them."""
    read = [block for block in blocks if block.package_joules]
    seconds = sum(block.wall_seconds for block in read)
    if not seconds:
        return None
    joules = sum(sum(block.package_joules.values()) for block in read)
    return Power(joules / seconds, "RAPL " + "+".join(read[0].package_joules))


def _gpu_power(gpus: Sequence[GpuUsage]) -> Power | None:
    """Return the power by the energy counter, else by the samples that are taken twice per second."""
    counted = [(gpu.joules, gpu.seconds) for gpu in gpus if gpu.joules is not None and gpu.seconds]
    if counted:
        return Power(sum(j for j, _ in counted) / sum(s for _, s in counted), "NVML energy counter")
    watts = _mean(sample.power for gpu in gpus for sample in gpu.samples)
    return None if watts is None else Power(watts, "NVML power")


def _energy(epoch_seconds: float | None, gpu: Power | None, package: Power | None) -> Energy:
    powers = [power for power in (gpu, package) if power is not None]
    if epoch_seconds is None or not powers:
        return Energy()
    source = " and ".join(power.source for power in powers)
    joules = epoch_seconds * sum(power.watts for power in powers)
    return Energy(joules, source if package else f"{source}, GPU only")


def _memory(memory: Memory, samples: Sequence[GpuSample], freed: int | None) -> Memory:
    """Add the driver's peak for the process or, as in many containers, the memory that its end freed."""
    peak = max((s.memory_bytes for s in samples if s.memory_bytes is not None), default=None)
    if peak is not None:
        return msgspec.structs.replace(memory, device_nvml_bytes=peak, device_nvml_source=NVML_BY_PROCESS)
    if freed is not None:
        return msgspec.structs.replace(memory, device_nvml_bytes=freed, device_nvml_source=NVML_BY_DIFFERENCE)
    return memory


def _warnings(blocks: Sequence[BlockUsage], gpus: Sequence[GpuUsage], memory_unknown: bool) -> Iterator[str]:
    """Yield what could not be read, each reason once, and then what makes times on a GPU less certain."""
    failures: dict[str, dict[str, None]] = {}
    for block in blocks:
        gpu_failures = block.gpu.failures if block.gpu else {}
        for quantity, reason in (block.failures | gpu_failures).items():
            failures.setdefault(reason, {})[quantity] = None
    for reason, quantities in failures.items():
        yield f"cannot read {', '.join(quantities)} ({reason})"
    if memory_unknown and not failures:
        yield "cannot read device memory (NVML reports it neither by process nor by difference)"
    throttled = [bits for gpu in gpus if (bits := _throttle_bits(gpu))]
    if throttled:
        names = ", ".join(_throttle_names(throttled))
        yield f"the GPU was throttled in {len(throttled)} of {len(blocks)} timing blocks: {names}"
    shared = sum(any(sample.other_processes for sample in gpu.samples) for gpu in gpus)
    if shared:
        yield f"another process used the GPU in {shared} of {len(blocks)} timing blocks"


def _throttle_bits(gpu: GpuUsage) -> int:
    bits = 0
    for sample in gpu.samples:
        bits |= (sample.throttle_reasons or 0) & THROTTLED
    return bits


def _throttle_names(bits: Iterable[int]) -> list[str]:
    seen = list(bits)
    return [name for bit, name in THROTTLE_REASON_NAMES.items() if any(bit & one for one in seen)]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
