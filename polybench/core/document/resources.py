"""What a cell used: allocations, garbage collection, memory, cores and GPU, energy, money,
and how near it came to what the machine can do.

Seconds, bytes and counts; null is "not measured" or "no source", never 0.
"""

from __future__ import annotations

import msgspec


class Allocation(msgspec.Struct, frozen=True):
    """Allocations of one training step, as far as `source` can see them.

    `covers` says which those are; where a number is null, it says why.
    """

    count_per_step: float | None
    bytes_per_step: float | None
    source: str
    covers: str


class DeviceAllocation(Allocation, frozen=True):
    """Requests to an engine's pool on a GPU, and what that made of them.

    A field is null where `source` does not have it: only PyTorch counts how often its pool asks the driver.
    """

    allocated_bytes_per_step: float | None = None
    """What the pool gave for them, rounded up to its blocks."""
    reserved_bytes: int | None = None
    """What the pool held of the device after these steps, in use or not."""
    driver_calls_per_step: float | None = None
    """Requests for which the pool had to ask the driver: cudaMalloc and the like."""
    retries_per_step: float | None = None
    """Of these, such as the driver refused until the pool had given back what it kept."""


class SizeClasses(msgspec.Struct, frozen=True):
    """Allocations of a step by the bytes that each asked for."""

    small: float
    """Below 1 KiB."""
    medium: float
    """From there to 256 KiB."""
    large: float


class NativeAllocation(msgspec.Struct, frozen=True):
    """What a training step asks of the C library and the kernel: the same instrument in every engine.

    These numbers may be divided by one another.
    """

    count_per_step: float
    bytes_per_step: float
    live_peak_bytes: int
    """The most that was in use at one time, of what these steps allocated."""
    by_size: SizeClasses
    source: str
    covers: str
    relative_bytes: float | None = None
    """To the baseline's; null where that has none."""


class Allocations(msgspec.Struct, frozen=True):
    """Those of a step in the memory of the host, and of the device; null where nothing can see them.

    `host` and `device` are what each engine tells of itself; `native` is counted from outside of it.
    """

    host: Allocation | None = None
    device: DeviceAllocation | None = None
    native: NativeAllocation | None = None


class GarbageCollection(msgspec.Struct, frozen=True):
    """What the garbage collector did during the timed steps."""

    seconds_per_step: float | None = None
    full_sweeps: int | None = None
    """In all timed steps together."""


class Memory(msgspec.Struct, frozen=True):
    """Bytes of a worker, in one of its processes where nothing else is said."""

    peak_rss_bytes: int | None = None
    """Resident at most in its whole life, the largest over processes."""
    baseline_rss_bytes: int | None = None
    """Resident once the framework was imported."""
    rss_anon_bytes: int | None = None
    """Resident after training steps: the process's own memory."""
    rss_file_bytes: int | None = None
    """Resident after training steps: what is mapped from files, the data set included."""
    step_peak_increase_bytes: int | None = None
    """By how much the peak of a few steps was above what was resident before them."""
    device_peak_bytes: int | None = None
    """What the engine's allocator had in use at most."""
    device_nvml_bytes: int | None = None
    """What the driver says, with the context and the allocator's cache."""
    device_nvml_source: str | None = None
    """How `device_nvml_bytes` was found."""


class Utilization(msgspec.Struct, frozen=True):
    """Means over the blocks of timed steps, with the reset and the untimed steps at their beginning.

    What is not the worker's is the GPU's as a whole.
    """

    cpu_percent: float | None = None
    """The worker's, of one core."""
    cores_used: float | None = None
    """The same as a number of cores."""
    gpu_percent: float | None = None
    """Of the time, busy."""
    power: float | None = None
    """W; on the CPU that of its package."""
    clocks: dict[str, float] | None = None
    """MHz."""
    temperature: float | None = None
    """Degrees Celsius, the highest."""
    throttle: list[str] | None = None
    """The reasons seen for lowered clocks."""


class BlockReading(msgspec.Struct, frozen=True):
    """What the kernel counted during one block, its reset and untimed steps included.

    The worker's own counts are of all its threads; null where the kernel does not say. What others did is
    the machine's.
    """

    wall_seconds: float
    cpu_seconds: float
    others_cpu_seconds: float
    """Of processes that are not polybench's, on whichever core."""
    steal_seconds: float
    """That the hypervisor gave to others."""
    run_delay_seconds: float | None = None
    """Ready to run, and waiting for a core; summed over threads."""
    pressure_seconds: float | None = None
    """While some task of the machine, anybody's, waited for a core."""
    minor_faults: int | None = None
    major_faults: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    fault_seconds: float = 0.0
    """What the minor faults cost, as far as a fault on fresh memory tells."""
    disturbed: bool = False
    """Whether others kept the worker from its cores; see machine.disturbance."""
    repeats: int = 0
    """How often the block was measured again; this is the least disturbed of these measurements."""


class Disturbance(msgspec.Struct, frozen=True):
    """What the kernel counted of the worker, all threads, over whole blocks; means of a training step.

    A block's reset and its untimed steps count as steps.
    """

    run_delay_seconds_per_step: float | None = None
    """Ready to run, and waiting for a core; summed over threads."""
    minor_faults_per_step: float | None = None
    """Pages that the kernel had to map, without reading any from disk."""
    major_faults_per_step: float | None = None
    voluntary_switches_per_step: float | None = None
    involuntary_switches_per_step: float | None = None
    blocks_repeated: int | None = None
    """How many blocks were measured again, because others had kept the worker from its cores."""
    blocks_disturbed: int | None = None
    """How many stayed disturbed all the same."""
    blocks: list[list[BlockReading]] = []
    """As [process][round]."""


class Energy(msgspec.Struct, frozen=True):
    """Mean power over the blocks times the seconds of an epoch, everything on the chip included."""

    joules_per_epoch: float | None = None
    source: str | None = None
    """Whose power it is: of the processor's packages, of the GPU, or of both."""


class Roof(msgspec.Struct, frozen=True):
    """The most arithmetic that this machine was seen to do, as `polybench limit` has measured it.

    `share` is how much of it a training step reaches: its FLOP are those of the direct convolution, so an
    algorithm that needs fewer (Winograd's) may pass 1. Null where there is no step. `source` names product
    and engine. The others were measured with it: the fastest convolution, if they were of the same network
    at the same batch size, and the triad's bandwidth.
    """

    flops_per_second: float
    share: float | None
    source: str
    convolution_flops_per_second: float | None = None
    bytes_per_second: float | None = None


class Cost(msgspec.Struct, frozen=True):
    """What an epoch costs by the study's prices."""

    dollars_per_epoch: float
    relative: float | None
    """To the baseline's; null where that has no price."""
