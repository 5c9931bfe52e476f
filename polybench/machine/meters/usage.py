"""Meter readings of one timing block; `results.usage` summarizes them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GpuSample:
    """Sample of a GPU. None: the reading failed for the reason in `GpuUsage.failures`.

    `gpu_percent` covers NVML's own window of 1/6 to 1 second. `power` is in W, clocks are in MHz,
    `temperature` is in degrees Celsius. `throttle_reasons` are NVML's bits. `memory_bytes` is the worker's
    memory. `other_processes` counts processes on the GPU that are not workers of this study; None if unknown.
    """

    gpu_percent: float | None = None
    power: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    temperature: float | None = None
    throttle_reasons: int | None = None
    memory_bytes: int | None = None
    other_processes: int | None = None


@dataclass
class GpuUsage:
    """Readings of a GPU during one block; `joules` and `seconds` are between two readings of its energy
    counter.
    """

    seconds: float = 0.0
    joules: float | None = None
    samples: list[GpuSample] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class BlockUsage:
    """Readings of one worker during one block; `wall_seconds` includes the reset and untimed steps.

    `package_joules` has each readable processor package. `failures` maps failed readings to reasons.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    package_joules: dict[str, float] = field(default_factory=dict)
    gpu: GpuUsage | None = None
    failures: dict[str, str] = field(default_factory=dict)
