"""What the meters read of one block: plain records, condensed in `report.usage`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GpuSample:
    """One look at a GPU. None: it did not say, and `GpuUsage.failures` says why.

    `gpu_percent` is of NVML's own window, which is between a sixth of a second and a second long; `power`
    in W, clocks in MHz, `temperature` in degrees Celsius, `throttle` NVML's bits. `memory_bytes` is
    the worker's, by its process id. `others`: how many processes are on the GPU that are no workers of this
    study; None where it cannot be known.
    """

    gpu_percent: float | None = None
    power: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    temperature: float | None = None
    throttle: int | None = None
    memory_bytes: int | None = None
    others: int | None = None


@dataclass
class GpuUsage:
    """A GPU during one block; `joules` and `seconds` are those between its energy counter's two readings."""

    seconds: float = 0.0
    joules: float | None = None
    samples: list[GpuSample] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class BlockUsage:
    """One block of one worker; `wall_seconds` are the whole request's, reset and untimed steps included.

    `package_joules`: of each processor package that could be read. `failures`: what could not be read -> why.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    package_joules: dict[str, float] = field(default_factory=dict)
    gpu: GpuUsage | None = None
    failures: dict[str, str] = field(default_factory=dict)
