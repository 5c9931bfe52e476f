"""What a cell used: allocations, garbage collection, memory, cores and GPU, energy, money.

Seconds, bytes and counts; null is "not measured" or "no source", never 0.
"""

from __future__ import annotations

import msgspec


class Allocation(msgspec.Struct, frozen=True):
    """Allocations of one training step, as far as `source` can see them."""

    count_per_step: float | None
    bytes_per_step: float | None
    source: str
    covers: str


class Allocations(msgspec.Struct, frozen=True):
    host: Allocation | None = None
    device: Allocation | None = None


class GarbageCollection(msgspec.Struct, frozen=True):
    """During the timed steps: seconds of a step that the collector took, and how many full sweeps in all."""

    seconds_per_step: float | None = None
    full_sweeps: int | None = None


class Memory(msgspec.Struct, frozen=True):
    """Bytes of a worker.

    `peak_rss_bytes`: resident at most in its whole life, the largest over processes; the others are of one
    process. `baseline_rss_bytes`: resident once the framework was imported. `rss_anon_bytes` and
    `rss_file_bytes`: resident after training steps, the process's own memory and what is mapped from files,
    the data set included.
    `step_peak_increase_bytes`: by how much the peak of a few steps was above what was resident before them.
    `device_peak_bytes`: what the engine's allocator had in use at most. `device_nvml_bytes`: what the driver
    says, with the context and the allocator's cache; `device_nvml_source` tells how that was found.
    """

    peak_rss_bytes: int | None = None
    baseline_rss_bytes: int | None = None
    rss_anon_bytes: int | None = None
    rss_file_bytes: int | None = None
    step_peak_increase_bytes: int | None = None
    device_peak_bytes: int | None = None
    device_nvml_bytes: int | None = None
    device_nvml_source: str | None = None


class Utilization(msgspec.Struct, frozen=True):
    """Means over the blocks of timed steps, with the reset and the untimed steps at their beginning.

    `cpu_percent` of one core and `cores_used` (the same as a number of cores) are the worker's; the others
    the GPU's as a whole: `gpu_percent` of the time busy, `power` in W (on the CPU that of its package),
    `clocks` in MHz, `temperature` in degrees Celsius (the highest), `throttle` the reasons seen for lowered
    clocks.
    """

    cpu_percent: float | None = None
    cores_used: float | None = None
    gpu_percent: float | None = None
    power: float | None = None
    clocks: dict[str, float] | None = None
    temperature: float | None = None
    throttle: list[str] | None = None


class Energy(msgspec.Struct, frozen=True):
    """Mean power over the blocks times the seconds of an epoch, everything on the chip included.

    `source` says whose power it is: of the processor's packages, of the GPU, or of both.
    """

    joules_per_epoch: float | None = None
    source: str | None = None


class Cost(msgspec.Struct, frozen=True):
    dollars_per_epoch: float
    relative: float | None
