"""The documents of `layers`, `overhead`, `sweep`, `peak` and `allocations`.

Times are in seconds, sizes in bytes. Null means "not measured" or "no source", never 0.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from polybench.networks.layers import Operation
from polybench.networks.model import Model
from polybench.schema import units
from polybench.schema.metadata import Document, InputKind, PublishedResult, RoundInterference, Settings, Tag
from polybench.schema.options import (
    RENAME,
    Amount,
    Id,
    NaturalInt,
    Number,
    Pass,
    Positive,
    PositiveInt,
    Seconds,
    Workload,
)
from polybench.schema.resources import PeakComparison
from polybench.schema.result import ConfigurationStatus, Interval, StepTimes

STEP = "step"
"""The `layer` of rows that belong to the whole step."""


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of one layer, or of one residual block including its layers.

    `ci95` is over processes, or over rounds if there is one process; null for a single round. `flops` counts
    the direct convolution, product or LSTM, two for each multiply-add. `min_bytes_moved` is the traffic if
    every value is read or written once.
    """

    layer: str
    """STEP if it belongs to no layer."""
    operation: Operation
    seconds_per_step: Number
    """Without the pauses of the garbage collector."""
    ci95: Interval | None
    gc_seconds_per_step: Number | None = None
    flops: NaturalInt | None = None
    min_bytes_moved: NaturalInt | None = None
    native_bytes: Amount | None = None
    seconds: list[list[Number]] = []
    """As [process][round], without the rounds with interference."""

    @property
    def has_wide_time(self) -> bool:
        """True if the interval reaches from below half of the time to above twice."""
        return units.is_wide(self.seconds_per_step, self.ci95)


class ConfigurationLayers(ConfigurationStatus, kw_only=True):
    """A configuration: whole steps and their operations, measured in the same rounds.

    `unattributed_seconds`, with `ci95`, is `step_seconds` minus the sum of the rows. It is negative if the
    operations take longer alone than together, and null if only whole steps were timed. All times are means over
    processes and rounds, which add up.
    """

    parity: Literal["pass", "fail", "skipped"]
    compiled_as_whole: bool = False
    """The engine compiles or times the step as a whole, so its layers have no separate times."""
    step_seconds: Seconds | None = None
    step_ci95: Interval | None = None
    unattributed_seconds: Number | None = None
    ci95: Interval | None = None
    gc_seconds_per_step: Number | None = None
    """Garbage collection in the whole step; the rows exclude it, so it is part of what is unattributed."""
    peak: PeakComparison | None = None
    """For whole steps."""
    rows: list[LayerRow] = []
    step_times: StepTimes | None = None
    """For whole steps, without the rounds with interference."""
    versions: dict[str, Any] = {}
    """As in the results of a study."""


LAYERS_SCHEMA = "polybench.layers/2"


class LayersDocument(Document, kw_only=True):
    """The saved document. `study` is the measured study as TOML."""

    schema: str = LAYERS_SCHEMA
    id: Id
    study: str
    settings: Settings
    interference: list[RoundInterference] = []
    """An entry per round."""
    configurations: list[ConfigurationLayers] = []

    def configuration(self, name: str) -> ConfigurationLayers | None:
        """The configuration of this name; None if it was not requested."""
        return next((one for one in self.configurations if one.configuration == name), None)


MAX_RESIDUAL = 0.15
"""Largest relative residual of a point from the linear fit of an overhead."""


class OverheadPoint(msgspec.Struct, frozen=True):
    """The step time at one batch size."""

    batch_size: PositiveInt
    step_seconds: Seconds
    ci95: Interval | None


class OverheadIntervals(msgspec.Struct, frozen=True):
    """95 % intervals over processes; null for one process."""

    overhead_seconds: Interval | None
    seconds_per_item: Interval | None


class ConfigurationOverhead(ConfigurationStatus, kw_only=True):
    """A configuration: step time = overhead_seconds + seconds_per_item x batch size.

    At `batch_size_at_50pct_overhead`, the overhead is half of a step. `max_relative_residual` is the largest
    deviation of a point from the line, as a fraction; if it is large, the cost is not linear.
    `python_call_overhead_seconds` is the extra time of a call from Python, the median over batch sizes: for
    Flux the bridge to Julia, and the collections that `gc_off` runs between steps. It is included neither in
    the step times nor in `overhead_seconds`.
    """

    overhead_seconds: Number | None = None
    seconds_per_item: Number | None = None
    ci95: OverheadIntervals = OverheadIntervals(None, None)
    batch_size_at_50pct_overhead: Number | None = None
    python_call_overhead_seconds: Number | None = None
    max_relative_residual: Number | None = None
    points: list[OverheadPoint] = []

    @property
    def is_linear(self) -> bool:
        """False if the points refute the linear fit, so that it is not a result."""
        return self.max_relative_residual is None or self.max_relative_residual <= MAX_RESIDUAL


class OverheadDocument(Document, kw_only=True, rename=RENAME):
    """The overheads of all configurations of a sweep over batch sizes."""

    schema: str = "polybench.overhead/2"
    model: str
    pass_: Pass = "training"
    input_kind: InputKind = "image"
    threads: PositiveInt
    batch_sizes: list[PositiveInt] = []
    """As requested."""
    studies: list[Id] = []
    """IDs of the saved studies, in the order of their batch sizes."""
    configurations: list[ConfigurationOverhead]
    title: str | None = None
    tags: list[Tag] = []


class PointResult(msgspec.Struct, frozen=True):
    """A configuration at one point; numbers are null if it could not be measured, with a `reason`.

    `speedup`, with `ci95`, is its items per second relative to its own first point. `efficiency` is `speedup`
    over the ratio of threads; null unless threads vary. `relative_time` and `relative_cost` are an epoch's,
    relative to the sweep's reference. Dollars are null if the device has no price at this number of threads.
    """

    configuration: str
    status: str
    reason: str | None = None
    step_seconds: Seconds | None = None
    items_per_second: Positive | None = None
    speedup: Positive | None = None
    ci95: Interval | None = None
    inconclusive_reason: str | None = None
    """Reason why `speedup` and `efficiency` support no conclusion."""
    efficiency: Positive | None = None
    epoch_seconds: Positive | None = None
    relative_time: Positive | None = None
    dollars_per_hour: Positive | None = None
    """For all devices that the configuration uses."""
    dollars_per_epoch: Positive | None = None
    relative_cost: Positive | None = None
    relative_cost_ci95: Interval | None = None
    relative_inconclusive_reason: str | None = None
    """Reason why `relative_time` and `relative_cost` support no conclusion."""
    caveat: str | None = None
    """See `Result.caveat`."""
    busy: bool = False
    """As in `ConfigurationStatus`."""


class PointReference(msgspec.Struct, frozen=True):
    """A configuration at a point."""

    configuration: str
    parameters: dict[str, NaturalInt]


class ThreadPoolSizes(msgspec.Struct, frozen=True):
    """An entry of a grid: the threads that Julia and BLAS report, and the step time."""

    julia: PositiveInt
    blas: PositiveInt
    step_seconds: Seconds
    ci95: Interval | None


class ThreadPoolGrid(msgspec.Struct, frozen=True):
    """An engine with several sizes of its thread pools, at one point of the other axes."""

    configuration: str
    parameters: dict[str, NaturalInt]
    sizes: list[ThreadPoolSizes]
    best: ThreadPoolSizes
    as_good: list[ThreadPoolSizes] = []
    """Sizes that do not differ from the best significantly, corrected for all pairs of sizes."""

    def __post_init__(self) -> None:
        if not {(one.julia, one.blas) for one in (self.best, *self.as_good)} <= {(o.julia, o.blas) for o in self.sizes}:
            raise ValueError("the best sizes of the thread pools are not in their grid")


class SweepPoint(msgspec.Struct, frozen=True):
    """A study; `id` is that of its saved document."""

    parameters: dict[str, NaturalInt]
    id: Id
    oversubscribed: bool
    """True if it uses more threads than the machine has cores for."""
    configurations: list[PointResult]
    workload: Workload | None = None
    """The workload at the study's first precision; a configuration may have another one."""


class Curve(msgspec.Struct, frozen=True):
    """A configuration over all points: its best point and, with one axis, its knee."""

    configuration: str
    best: Annotated[dict[str, int], msgspec.Meta(min_length=1)]
    best_items_per_second: Positive
    as_good: list[dict[str, NaturalInt]] | None = None
    """Points that do not differ from the best significantly, corrected for all pairs; null for single processes."""
    knee: NaturalInt | None = None
    """The smallest value of the only axis that reaches 90 % of the best throughput."""


class SweepDocument(Document, kw_only=True, rename=RENAME):
    """A whole sweep."""

    schema: str = "polybench.sweep/2"
    model: str
    pass_: Pass = "training"
    input_kind: InputKind = "image"
    axes: dict[str, list[NaturalInt]]
    points: list[SweepPoint]
    curves: list[Curve]
    reference: PointReference | None = None
    """The reference of relative times and costs: the baseline at the first point that has one."""
    inconclusive_reason: str | None = None
    """Reason why `fastest` and the best points of the curves support no conclusion."""
    fastest: list[PointReference] = []
    """The configuration and point with the highest throughput, then all that cannot be told from it."""
    cheapest: list[PointReference] = []
    """The same for the lowest cost of an epoch; empty without prices."""
    thread_pools: list[ThreadPoolGrid] = []
    """For engines with two thread pools, if both sizes vary."""
    title: str | None = None
    tags: list[Tag] = []
    published: list[PublishedResult] = []
    """Numbers that the author of a study file's sweep published."""

    def __post_init__(self) -> None:
        if any(set(point.parameters) != set(self.axes) for point in self.points):
            raise ValueError("the parameters of a point are not the axes of the sweep")
        results = [(one.configuration, point.parameters) for point in self.points for one in point.configurations]
        references = [*self.fastest, *self.cheapest, *([self.reference] if self.reference else [])]
        named = [(one.configuration, one.parameters) for one in references]
        if not all(one in results for one in [*named, *((curve.configuration, curve.best) for curve in self.curves)]):
            raise ValueError("the best result is not at a point of the sweep")
        if not {one.configuration for one in self.fastest} <= {curve.configuration for curve in self.curves}:
            raise ValueError("the fastest configuration has no curve")


PeakKind = Literal["gemm", "convolution", "memory_bandwidth"]
"""A product of square matrices; a convolution of the network; the STREAM triad a = b + s c over arrays that
are larger than every cache."""

MAX_DRIFT = 0.05
"""Largest drift from the first to the last round, and largest CPU contention, of a peak that percentages may
refer to."""


class PeakMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The highest throughput of its kind over all engines, sizes and directions; the median over rounds.

    `ci95` is the interval of that median within this run; null for fewer than six rounds. `drift` is the
    relative change from the first to the last round; null for a single round. `cpu_contention` is the
    fraction of the required cores that other programs and the hypervisor took: the median over rounds.
    """

    device: str
    precision: str | None
    """The engines' precision; null for memory bandwidth, which NumPy measures in float64."""
    threads: PositiveInt
    kind: PeakKind
    value: Positive
    unit: Literal["FLOP/s", "B/s"]
    """FLOP counts the direct computation. Bytes are those of three arrays, each read or written once, without
    the cache lines that are fetched before a write."""
    engine: str
    """With its variant."""
    shape: str
    ci95: Interval | None
    drift: Number | None
    cpu_contention: Number
    measured_at: str
    """UTC, ISO 8601."""

    @property
    def is_stable(self) -> bool:
        """True if percentages of this peak are meaningful."""
        return self.drift is not None and abs(self.drift) <= MAX_DRIFT and self.cpu_contention <= MAX_DRIFT


class ConfigurationPeaks(ConfigurationStatus, kw_only=True):
    """A requested configuration and its outcome."""

    versions: dict[str, str] = {}


class PeakDocument(Document, kw_only=True):
    """The saved document. The convolutions are those of `model` with `batch_size` images."""

    schema: str = "polybench.peak/2"
    model: str
    network: Model | None = None
    """The network itself, if it came from a user's file."""
    batch_size: PositiveInt
    threads: PositiveInt
    malloc: str
    numpy: str | None = None
    """The version of NumPy, which measured memory bandwidth, and matrix products beside the engines."""
    interference: list[RoundInterference] = []
    """An entry per round."""
    peaks: list[PeakMeasurement]
    configurations: list[ConfigurationPeaks]


class AllocationSite(msgspec.Struct, frozen=True):
    """An operator, operation or function, and its allocations.

    An allocation is avoidable if a block of the same size was free, because the same step had allocated and
    freed it before.
    """

    location: str
    bytes_per_step: Amount
    count_per_step: Amount
    avoidable_allocations_per_step: Amount | None = None
    avoidable_bytes_per_step: Amount | None = None


class AllocationProfile(msgspec.Struct, frozen=True):
    """All allocation sites that `source` reports, the most bytes first."""

    source: str
    coverage: str
    sites: list[AllocationSite]


class ConfigurationAllocations(ConfigurationStatus, kw_only=True):
    """A configuration; without `source`, `status`, `reason` and `hint` say why."""

    source: str | None = None
    coverage: str | None = None
    bytes_per_step: Amount | None = None
    count_per_step: Amount | None = None
    sites: list[AllocationSite] = []


class AllocationsDocument(Document, kw_only=True):
    """The document. `study` is the profiled study as TOML."""

    schema: str = "polybench.allocations/2"
    study: str
    settings: Settings
    interference: list[RoundInterference] = []
    """An entry per round."""
    configurations: list[ConfigurationAllocations] = []
