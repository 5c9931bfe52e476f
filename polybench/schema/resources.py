"""Resources that a configuration uses: allocations, garbage collection, memory, cores, GPU, energy, money,
and the fraction of the machine's peak that it reaches.

Seconds, bytes and counts. Null means "not measured" or "no source", never 0.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from polybench.schema.options import Amount, Integer, NaturalInt, Number, Positive, PositiveInt, Seconds


class Allocation(msgspec.Struct, frozen=True):
    """Allocations of one training step, as far as `source` sees them.

    `coverage` describes which allocations these are, or why a number is null.
    """

    count_per_step: Amount | None
    bytes_per_step: Amount | None
    source: str
    coverage: str


class DeviceAllocation(Allocation, frozen=True):
    """Requests to an engine's memory pool on a GPU, and their effect on the pool.

    A field is null if `source` does not provide it: only PyTorch counts the calls of its pool to the driver.
    """

    allocated_bytes_per_step: Amount | None = None
    """Bytes that the pool returned for them, rounded up to its blocks."""
    reserved_bytes: NaturalInt | None = None
    """Device memory that the pool holds after these steps, used or not."""
    driver_calls_per_step: Amount | None = None
    """Requests that the pool passed to the driver: cudaMalloc and the like."""
    retries_per_step: Amount | None = None
    """Driver calls that failed until the pool had released its cached memory."""


class SizeClasses(msgspec.Struct, frozen=True):
    """Allocations per step by requested size: below 1 KiB, below 256 KiB, and larger."""

    lt_1kib: Amount
    ge_1kib_lt_256kib: Amount
    ge_256kib: Amount


class NativeAllocation(msgspec.Struct, frozen=True):
    """Requests of a training step to the C library and the kernel, counted by the same tool in every engine.

    Ratios of these numbers are meaningful.
    """

    count_per_step: Amount
    bytes_per_step: Amount
    peak_live_bytes: NaturalInt
    """Peak of the memory in use at one time, of what these steps allocated."""
    by_size: SizeClasses
    source: str
    coverage: str
    ratio_to_baseline: Amount | None = None
    """Ratio of bytes per step; null if the baseline has none."""


class Allocations(msgspec.Struct, frozen=True):
    """Allocations per step in the memory of the host and of the device; null without a source.

    `host` and `device` are each engine's own account; `native` is counted outside of the engine.
    """

    host: Allocation | None = None
    device: DeviceAllocation | None = None
    native: NativeAllocation | None = None


class GcStats(msgspec.Struct, frozen=True):
    """Counters of a garbage collector: seconds of pauses, and full collections."""

    seconds: float
    full_collections: int

    def __sub__(self, earlier: GcStats) -> GcStats:
        return GcStats(self.seconds - earlier.seconds, self.full_collections - earlier.full_collections)


class BlockMeasured(msgspec.Struct, frozen=True):
    """Measurement of a timing block in the worker, of its timed steps. The log has these fields in `block`.

    A result has the means of counters and times per step, by the same names: `results.blocks`.
    """

    step_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    """Times per step: one value per step, or one per block if the engine times steps together."""
    steps_per_value: PositiveInt
    peak_rss_bytes: NaturalInt
    """Over the process's lifetime so far."""
    gc: GcStats | None = None
    data_wait_seconds: float | None = None
    call_overhead_seconds: float | None = None
    """Median of the time that Python measures around a call, minus the step times that the engine reports.

    Null if negative, which happens only with a simulated clock.
    """


class GarbageCollection(msgspec.Struct, frozen=True):
    """Work of the garbage collector during the timed steps."""

    seconds_per_step: Amount | None = None
    full_collections: NaturalInt | None = None
    """In all timed steps together."""


class Memory(msgspec.Struct, frozen=True):
    """Memory of a worker in bytes, for one of its processes unless stated otherwise."""

    peak_rss_bytes: NaturalInt | None = None
    """Peak resident memory over the worker's lifetime, the largest over processes."""
    rss_after_import_bytes: NaturalInt | None = None
    """Resident memory after the import of the framework."""
    rss_anon_bytes: NaturalInt | None = None
    """Private resident memory after training steps."""
    rss_file_bytes: NaturalInt | None = None
    """Resident memory mapped from files after training steps, including the data set."""
    step_peak_increase_bytes: Integer | None = None
    """Peak of a few steps above the resident memory before them."""
    device_peak_bytes: NaturalInt | None = None
    """Peak memory in use of the engine's allocator."""
    device_nvml_bytes: NaturalInt | None = None
    """Device memory according to the driver, including the context and the allocator's cache."""
    device_nvml_source: str | None = None
    """Method that measured `device_nvml_bytes`."""
    growth_bytes_per_step: Number | None = None
    """What each step adds to the memory in use: the mean over processes."""
    growth_ci95: tuple[Number, Number] | None = None
    """Its interval over processes; null for one process."""


class MemoryInUse(msgspec.Struct, frozen=True):
    """Memory that a process has allocated and not freed, read a few times between training steps.

    Unlike resident memory, it does not contain what allocators retain, nor garbage: a collection precedes each reading.
    """

    steps: list[NaturalInt]
    """Steps before each reading, from the first one on."""
    bytes: list[NaturalInt]
    """From malloc, or in the heap of the engine's own language, and from the engine's allocator on its GPU."""

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.bytes) or sorted(set(self.steps)) != self.steps:
            raise ValueError("memory in use has other steps than bytes, or steps that do not increase")


class Utilization(msgspec.Struct, frozen=True):
    """Means over the timing blocks, including the reset and the untimed steps at the start of each.

    CPU values are the worker's; GPU values are those of the whole GPU.
    """

    cpu_percent: Amount | None = None
    """Percentage of one core."""
    cores_used: Amount | None = None
    """`cpu_percent` as a number of cores."""
    gpu_percent: Amount | None = None
    """Percentage of time in which the GPU was busy."""
    power: Amount | None = None
    """Watts; on the CPU those of its package."""
    clocks: dict[str, Amount] | None = None
    """MHz."""
    temperature: Number | None = None
    """Maximum, in degrees Celsius."""
    throttle_reasons: list[str] | None = None


class BlockCounters(msgspec.Struct, frozen=True):
    """The kernel's counters during one timing block, including its reset and untimed steps.

    Counters of the worker cover all of its threads; null if the kernel does not provide them.
    """

    wall_seconds: Positive
    cpu_seconds: Amount
    other_process_cpu_seconds: Number | None
    """CPU time, on any core, of processes that do not belong to polybench."""
    steal_seconds: Number | None
    """CPU time that the hypervisor gave to other machines."""
    cpu_wait_seconds: Number | None = None
    """Time in which the worker was ready to run but waited for a core; summed over threads."""
    cpu_pressure_seconds: Number | None = None
    """Time in which any task of the machine waited for a core (PSI)."""
    minor_faults: NaturalInt | None = None
    major_faults: NaturalInt | None = None
    voluntary_switches: NaturalInt | None = None
    involuntary_switches: NaturalInt | None = None
    page_fault_seconds: Amount = 0.0
    """Cost of the minor faults, estimated from faults on fresh memory."""
    affected: bool = False
    """True if CPU contention affected the block; see machine.interference."""
    reruns: NaturalInt = 0
    """Number of times that polybench re-measured the block. It keeps the least affected measurement."""
    throttled_seconds: Number | None = None
    """Time in which the CPU quota of a control group stopped polybench's threads; summed over CPUs."""


MAX_AFFECTED_FRACTION = 0.25
"""Fraction of a configuration's timing blocks that may be affected before its ratios are inconclusive.

Affected blocks are left out, but if there are many, the other blocks probably suffered as well. With one busy
process in addition to two threads, torch's steps took up to 20 times as long."""


class Interference(msgspec.Struct, frozen=True):
    """The kernel's counters of the worker, all threads, over whole timing blocks; means per training step.

    A block's reset and its untimed steps count as steps.
    """

    cpu_wait_seconds_per_step: Number | None = None
    """Time in which the worker was ready to run but waited for a core; summed over threads."""
    minor_faults_per_step: Amount | None = None
    """Pages that the kernel mapped without reading from disk."""
    major_faults_per_step: Amount | None = None
    voluntary_switches_per_step: Amount | None = None
    involuntary_switches_per_step: Amount | None = None
    blocks_rerun: NaturalInt | None = None
    """Number of blocks that polybench re-measured because of CPU contention."""
    blocks_affected: NaturalInt | None = None
    """Number of blocks that are still affected."""
    blocks: list[list[BlockCounters]] = []
    """As [process][round]."""

    @property
    def is_excessive(self) -> bool:
        """True if too many timing blocks are affected for ratios."""
        return (self.blocks_affected or 0) > MAX_AFFECTED_FRACTION * sum(map(len, self.blocks))

    @property
    def is_mostly_steal(self) -> bool:
        """True if the hypervisor took more CPU time from the affected blocks than other programs did."""
        affected = [block for process in self.blocks for block in process if block.affected]
        others = sum(one.other_process_cpu_seconds or 0.0 for one in affected)
        return sum(one.steal_seconds or 0.0 for one in affected) > others


class Energy(msgspec.Struct, frozen=True):
    """Energy of an epoch: mean power over the timing blocks x epoch time, for everything on the chip."""

    joules_per_epoch: Amount | None = None
    source: str | None = None
    """The power meter: of the processor's packages, of the GPU, or of both."""


class PeakComparison(msgspec.Struct, frozen=True):
    """The machine's peak compute throughput, as `polybench peak` measured it, and the fraction reached.

    `fraction` is that of a training step, null if no step was timed. FLOP counts the direct convolution, so
    an algorithm with fewer operations (Winograd's) may exceed 1. `source` names product and engine. The other
    fields were measured in the same run: the fastest convolution, if of the same network at the same batch
    size, and the memory bandwidth.
    """

    flops_per_second: Positive
    fraction: Amount | None
    source: str
    convolution_flops_per_second: Positive | None = None
    bytes_per_second: Positive | None = None


class Cost(msgspec.Struct, frozen=True):
    """Cost of an epoch at the study's prices; null for variants that are not for production (`Result.caveat`)."""

    dollars_per_epoch: Positive
    relative: Positive | None
    """Ratio to the baseline's cost; null if the baseline has no price."""
    ci95: tuple[Number, Number] | None = None
    """The interval of `relative`, over processes, or over trainings if epochs were measured."""
    inconclusive_reason: str | None = None
    """Reason why `relative` is inconclusive whatever its interval."""

    @property
    def is_inconclusive(self) -> bool:
        """True if `relative` supports no conclusion."""
        return self.inconclusive_reason is not None
