"""Readings of blocks -> a row's utilization, energy, device memory and warnings. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from polybench.core.document.resources import Energy, Memory, Utilization
from polybench.core.document.result import Result
from polybench.machine.meters.nvml import THROTTLE_REASONS, THROTTLED
from polybench.machine.meters.usage import BlockUsage, GpuSample, GpuUsage
from polybench.report.replicas import devices

BY_PROCESS = "NVML, by process id"
BY_DIFFERENCE = "NVML, difference of the device's used memory when the worker ended"


class Power(NamedTuple):
    """Mean watts over the blocks, and who says so."""

    watts: float
    source: str


def add_usage(result: Result, blocks: Sequence[BlockUsage], gpu_bytes_freed: int | None = None) -> None:
    """Fill in what was seen of a measured cell, whose `epoch_seconds` is known.

    `gpu_bytes_freed`: by how much the used memory of its GPU fell when a worker ended, at most.
    The energy of an epoch is the mean power over the blocks times the time of an epoch: a block's power is
    also that of its reset and its untimed steps, which are a small part of it and do much the same work.
    """
    gpus = [block.gpu for block in blocks if block.gpu is not None]
    samples = [sample for gpu in gpus for sample in gpu.samples]
    package, gpu = _package_power(blocks), _gpu_power(gpus)
    result.utilization = _utilization(blocks, samples, package if result.device == "cpu" else gpu)
    # Of several GPUs the meters have seen the first one alone.
    result.energy = _energy(result.epoch_seconds, gpu, package) if devices(result) == 1 else Energy()
    result.memory = _memory(result.memory, samples, gpu_bytes_freed)
    result.warnings += _warnings(blocks, gpus, bool(gpus) and result.memory.device_nvml_bytes is None)


def _utilization(
    blocks: Sequence[BlockUsage], samples: Sequence[GpuSample], power: Power | None
) -> Utilization:
    wall = sum(block.wall_seconds for block in blocks)
    cores = sum(block.cpu_seconds for block in blocks) / wall if wall else None
    clocks = {
        "sm": _mean(sample.sm_clock for sample in samples),
        "memory": _mean(sample.memory_clock for sample in samples),
    }
    bits = [sample.throttle for sample in samples if sample.throttle is not None]
    return Utilization(
        cpu_percent=None if cores is None else 100 * cores,
        cores_used=cores,
        gpu_percent=_mean(sample.gpu_percent for sample in samples),
        power=power.watts if power else None,
        clocks={name: clock for name, clock in clocks.items() if clock is not None} or None,
        temperature=max((s.temperature for s in samples if s.temperature is not None), default=None),
        throttle=_reasons(bits) if bits else None,
    )


def _package_power(blocks: Sequence[BlockUsage]) -> Power | None:
    """Of all packages together: a worker's threads may be on any."""
    read = [block for block in blocks if block.package_joules]
    seconds = sum(block.wall_seconds for block in read)
    if not seconds:
        return None
    joules = sum(sum(block.package_joules.values()) for block in read)
    return Power(joules / seconds, "RAPL " + "+".join(read[0].package_joules))


def _gpu_power(gpus: Sequence[GpuUsage]) -> Power | None:
    """By the energy counter, else by the power that was seen twice a second."""
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
    """What the driver says of the process, at most; else, as in many containers, what its end set free."""
    most = max((s.memory_bytes for s in samples if s.memory_bytes is not None), default=None)
    if most is not None:
        return msgspec.structs.replace(memory, device_nvml_bytes=most, device_nvml_source=BY_PROCESS)
    if freed is not None:
        return msgspec.structs.replace(memory, device_nvml_bytes=freed, device_nvml_source=BY_DIFFERENCE)
    return memory


def _warnings(blocks: Sequence[BlockUsage], gpus: Sequence[GpuUsage], memory_unknown: bool) -> Iterator[str]:
    """What could not be read, each reason once; then what makes a GPU's times less certain."""
    failures: dict[str, dict[str, None]] = {}
    for block in blocks:
        gpu_failures = block.gpu.failures if block.gpu else {}
        for what, why in (block.failures | gpu_failures).items():
            failures.setdefault(why, {})[what] = None
    for why, whats in failures.items():
        yield f"not read: {', '.join(whats)} ({why})"
    if memory_unknown and not failures:
        yield "not read: device memory (NVML tells it neither by process nor by difference)"
    slowed = [bits for gpu in gpus if (bits := _throttled(gpu))]
    if slowed:
        yield f"the GPU was throttled in {len(slowed)} of {len(blocks)} blocks: {', '.join(_reasons(slowed))}"
    shared = sum(any(sample.others for sample in gpu.samples) for gpu in gpus)
    if shared:
        yield f"another process was on the GPU in {shared} of {len(blocks)} blocks"


def _throttled(gpu: GpuUsage) -> int:
    bits = 0
    for sample in gpu.samples:
        bits |= (sample.throttle or 0) & THROTTLED
    return bits


def _reasons(bits: Iterable[int]) -> list[str]:
    seen = list(bits)
    return [name for bit, name in THROTTLE_REASONS.items() if any(bit & one for one in seen)]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
