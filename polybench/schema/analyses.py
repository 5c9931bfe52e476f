"""The documents of `diff`, `history`, `merge` and `explain`, which are derived from saved documents.

Times are in seconds. Null means "not measured" or "no source", never 0.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polybench.networks.layers import Operation
from polybench.schema import units
from polybench.schema.metadata import Host, Settings, ToolVersion
from polybench.schema.options import RENAME, Amount, NaturalInt, Number, Pass, Positive, PositiveInt, Seconds
from polybench.schema.result import ConfigurationStatus, Interval

ENOUGH_REPETITIONS = 5
"""Number of repetitions from which the spread between studies is estimated without an assumption."""

Verdict = Literal["faster", "slower", "no difference", "cannot tell", "not comparable"]
"""Different work is not comparable. No difference above the tolerance is known only if the interval lies within it;
otherwise the measurements cannot tell."""
Changed = dict[str, tuple[Any, Any]]
"""Name of each difference, with both values; null means absent."""


class StudySpread(msgspec.Struct, frozen=True):
    """The spread between studies of the same work on one machine. Intervals across studies contain it."""

    std: Amount
    """Standard deviation of a study's step time, as a fraction; assumed in part if `repetitions` is below 5."""
    repetitions: NaturalInt
    """Number of saved repetitions it was estimated from."""
    degrees_of_freedom: Positive | None
    """Effective degrees of freedom of the variance; null if it is assumed."""

    @property
    def description(self) -> str:
        """The standard deviation and its source."""
        number = units.plural(self.repetitions, "saved repetition")
        if self.repetitions < ENOUGH_REPETITIONS:
            assumed = "assumed in part" if self.repetitions else "assumed"
            return f"{units.format_percent(self.std)} ({assumed}: {number}, of {ENOUGH_REPETITIONS} needed)"
        return f"{units.format_percent(self.std)} (estimated, {number})"


class RepetitionSpread(msgspec.Struct, frozen=True):
    """The spread between a study and its repetitions on other days, errors within the studies included."""

    quantity: Literal["speeds", "mean steps"]
    """`speeds` are relative to the baseline: what changes all configurations of a study alike is not in them."""
    std: Amount
    """Standard deviation, as a fraction."""
    studies: PositiveInt
    """Number of studies, with the study itself."""

    @property
    def description(self) -> str:
        """The spread in words."""
        spread = f"±{units.format_percent(self.std)} (standard deviation)"
        return f"Between {self.studies} studies on different days, {self.quantity} vary by {spread}"


class StudyInfo(msgspec.Struct, frozen=True):
    """A study in a comparison of two."""

    id: str
    created: str
    title: str | None
    hostname: str
    polybench: str


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in both studies. `ratio` is the speed in B over the speed in A; above 1 is faster.

    `step_seconds` are those of a mean step in A and in B, null if not measured. `ratio` is null if the two
    did different work. `ci95` is over processes and contains the spread between studies; it is null if one of the
    studies had a single process.
    """

    configuration: str
    engine: str
    device: str
    verdict: Verdict
    reason: str | None = None
    """Reason why the two are not comparable, or what the measurements cannot tell."""
    step_seconds: tuple[Seconds | None, Seconds | None] = (None, None)
    ratio: Positive | None = None
    ci95: Interval | None = None
    q_value: Amount | None = None
    """The smallest false discovery rate, over all verdicts of this diff, at which this one is significant."""
    machine_drift_ratio: Positive | None = None
    """The mean change of the other, unchanged engines on this device, which is attributed to the machine; null
    without such engines."""
    controls: list[str] = []
    """The configurations of these engines."""
    corrected_ratio: Positive | None = None
    """The ratio without the machine's drift, which the verdict refers to; null without a verdict. A verdict may be
    certain by `ci95` alone: if the drift is less certain than the change itself."""
    corrected_ci95: Interval | None = None
    """Its interval."""
    spread: StudySpread | None = None
    """The spread in this interval: of the configurations' own shifts if there are unchanged engines, else of all."""
    changed: Changed = {}


class DiffDocument(msgspec.Struct, kw_only=True):
    """A comparison of study A with study B."""

    schema: str = "polybench.diff/2"
    a: StudyInfo
    b: StudyInfo
    tolerance: Amount
    """Largest change, as a fraction, that does not count as a difference."""
    changed: Changed
    """Differences that apply to all rows."""
    rows: list[DiffRow]
    warnings: list[str] = []


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A study in a series: seconds of a mean step, with an interval over processes (null for one process).

    `segment_level` is the level of the segment, between two change points, that contains this point, without the
    machine's drift. Points with too much interference, which have an `inconclusive_reason`, do not affect it.
    """

    study: str
    created: str
    step_seconds: Seconds
    ci95: Interval | None
    segment_level: Seconds
    machine_drift_ratio: Positive | None = None
    """Speed of the machine in this study over its mean in the series, from the controls; null without one."""
    inconclusive_reason: str | None = None
    versions: dict[str, str]
    changed: Changed = {}
    """Versions that differ from those of the previous point."""
    title: str | None = None
    tags: list[str] = []


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A change from one level to another, without the machine's drift. `ratio` is the speed after it over the speed
    before; > 1 is faster.

    `ci95` contains the spread between studies, but not the choice of this study among all.
    """

    study: str
    """The first study at the new level."""
    previous_study: str
    """The last study at the old level."""
    created: str
    ratio: Positive
    ci95: Interval
    changed: Changed
    """Versions that differ between these two studies."""


class Series(msgspec.Struct, frozen=True, kw_only=True, rename=RENAME):
    """A configuration of one workload on one machine."""

    configuration: str
    engine: str
    variant: str | None
    device: str
    model: str
    pass_: Pass = "training"
    dataset: str
    batch_size: PositiveInt
    precision: str
    threads: PositiveInt
    hostname: str
    cpu: str
    distinguishing_settings: str
    """Settings that tell this series from others with equal fields above; empty if it is the only one."""
    points: list[Point]
    """In order of time."""
    change_points: list[ChangePoint]
    verdict: Verdict | None = None
    """Without a change point: whether the change from the first half of the points to the second lies within the
    tolerance."""
    reason: str | None = None
    """The changes that its interval contains, if it cannot tell."""
    controls: list[str] = []
    """Other engines on this device in the same studies; what changes all of them is attributed to the machine."""
    spread: StudySpread | None = None
    """The spread between successive studies with the same versions; change points exceed it."""
    excluded: NaturalInt = 0
    """Number of earlier studies beyond the maximum length of a series."""


class HistoryDocument(msgspec.Struct, kw_only=True):
    """All series that match the request."""

    schema: str = "polybench.history/2"
    tolerance: Amount
    """Largest change, as a fraction, that does not count as a change point."""
    series: list[Series]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A study on one machine; `name` is its label or host name, numbered if it appears more than once."""

    name: str
    study: str
    created: str
    cpu: str
    cores: PositiveInt
    gpus: list[str]
    threads: PositiveInt
    prices: dict[str, Positive]
    """Dollars per hour, by device."""
    spreads: dict[str, StudySpread] = {}
    """The spread between studies of this machine, by device."""


class MachineResult(ConfigurationStatus, kw_only=True):
    """A configuration on one machine.

    `speedup` is the speed relative to the baseline, with its interval; above 1 is faster. Cost is time x
    price. Values are null if they were not measured, if the row is not ranked, or without a price.
    """

    machine: str
    parity: str
    step_seconds: Seconds | None = None
    ci95: Interval | None = None
    items_per_second: Positive | None = None
    epoch_seconds: Positive | None = None
    speedup: Positive | None = None
    speedup_ci95: Interval | None = None
    inconclusive_reason: str | None = None
    dollars_per_epoch: Positive | None = None
    relative_cost: Positive | None = None
    relative_cost_ci95: Interval | None = None


class MergeDocument(msgspec.Struct, kw_only=True):
    """Studies of one workload in one table, grouped by machine."""

    schema: str = "polybench.merge/2"
    settings: Settings
    """Settings of the first study; all have the same workload."""
    baseline: str | None
    """`MACHINE:CONFIGURATION`."""
    machines: list[Machine]
    results: list[MachineResult]
    """In the order of the machines."""
    failed_machines: dict[str, str] = {}
    """Machines without a result, with the reason."""
    warnings: list[str] = []
    """Warnings of the studies, each once, with its machines."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, and the number that supports it."""

    text: str
    evidence: str
    """A column of the study's table, or a field of another saved document."""
    seconds: Number | None = None
    """The size of the effect, per step unless the text says otherwise."""
    command: str | None = None
    """The command that measures it, if it was not measured."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a difference: `difference_seconds` is `seconds` - `baseline_seconds`, with null as 0.

    `ci95` is the interval of the difference, over processes that ran side by side; null without such
    processes.
    """

    name: str
    kind: str
    """For a layer its operation, such as `input gradient`; otherwise the kind of cost."""
    difference_seconds: Number
    ci95: Interval | None = None
    seconds: Number | None = None
    baseline_seconds: Number | None = None


class Breakdown(msgspec.Struct, kw_only=True):
    """A difference broken down: `components` and `unattributed` add up to `difference_seconds`.

    `layers`: the operations of a step, each timed alone. `batch size`: the fixed overhead of a step, and the
    cost of its items. `start`: the difference of the cold starts, not of a step. `unattributed` names what no
    component explains; nothing is rescaled. The largest components come first.
    """

    kind: Literal["layers", "batch size", "start"]
    difference_seconds: Number
    seconds: Number
    baseline_seconds: Number
    components: list[Component]
    unattributed: list[Component] = []
    sources: list[str] = []
    """IDs of the other documents that were used."""


class ExplainedComparison(msgspec.Struct, kw_only=True):
    """A configuration compared with the baseline; `difference_seconds` is positive if its step is longer."""

    configuration: str
    baseline: str
    seconds: Number
    baseline_seconds: Number
    difference_seconds: Number
    ci95: Interval | None
    speedup: Positive
    speedup_ci95: Interval | None
    inconclusive_reason: str | None = None
    """Reason why the difference is inconclusive; null if it is not."""
    breakdowns: list[Breakdown] = []
    statements: list[Statement] = []

    def breakdown(self, kind: str) -> Breakdown | None:
        """The breakdown of this kind, or None."""
        return next((breakdown for breakdown in self.breakdowns if breakdown.kind == kind), None)


PartKind = Literal[
    "layer", "other operations", "garbage collection", "waiting for data", "between the layers", "whole step",
    "beside the layers", "forward", "backward",
]  # fmt: skip


class OperationDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The operation of a layer in which configurations differ most: the slowest one and another one."""

    operation: Operation
    configuration: str
    seconds: Number
    other: str
    other_seconds: Number


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the steps of all configurations, with its seconds per step by configuration.

    The parts up to `whole step` add up to it. `between the layers` is what layers timed alone do not account for;
    it is negative if they take longer alone. `forward` and `backward` are sums over layers.
    """

    name: str
    kind: PartKind
    seconds: dict[str, Number]
    ci95: dict[str, Interval] = {}
    """Intervals of those parts that were measured in a layers document of several processes or rounds."""
    largest_difference: OperationDifference | None = None
    """Of a layer; null if the intervals of all of its operations overlap."""


class ExplanationDocument(msgspec.Struct, kw_only=True):
    """All conclusions from saved documents about the differences in one study."""

    schema: str = "polybench.explanation/2"
    study: str
    """ID of the study."""
    created: str
    """Time of the study."""
    polybench: ToolVersion
    settings: Settings
    host: Host
    names: dict[str, str] = {}
    """Short names of the compared configurations."""
    layers: str | None = None
    """ID of the layers document whose times `parts` contain."""
    parts: list[StepPart] = []
    """The steps of all compared configurations side by side."""
    summary: list[Statement] = []
    """A sentence per pair, and one about the starts."""
    comparisons: list[ExplainedComparison]
    """Inconclusive ones first."""
    recommendations: list[Statement] = []
    """Settings that were measured to be faster, the largest gain first."""
    suggested_measurements: list[Statement] = []
    """Measurements that are missing, with their commands."""
    spreads: dict[str, StudySpread] = {}
    """The spread between studies of this machine by device, for recommendations from other studies."""
    excluded: list[Statement] = []
    """Configurations that cannot be compared."""

    def all_statements(self) -> list[Statement]:
        """Every statement, in reading order."""
        compared = [statement for comparison in self.comparisons for statement in comparison.statements]
        return [*compared, *self.recommendations, *self.suggested_measurements, *self.excluded]


class BisectPair(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement of a version and the first one side by side; `ratio` is its step time over that of the first."""

    version: str
    study: str
    """ID of the study."""
    ratio: Positive


class BisectDocument(msgspec.Struct, kw_only=True):
    """A search for the version at which the step time changed.

    `version` is null if the search is inconclusive.
    """

    schema: str = "polybench.bisect/2"
    subject: str = ""
    """The package, or the checkout."""
    engine: str = ""
    versions: list[str]
    """All versions in order; each pair contains the first one."""
    pairs: list[BisectPair]
    processes: NaturalInt = 0
    """Process runs of each version in a pair."""
    skipped: dict[str, str] = {}
    """Versions that could not be measured, with the reason."""
    version: str | None = None
    """The first version with another step time."""
    previous: str | None = None
    """The last measurable version before it."""
    description: str | None = None
    """First line of the commit's message; empty for a release."""
    probability: Amount | None = None
    ratio: Positive | None = None
    """Step time of the version over that of the previous one."""
    ci95: Interval | None = None
    credible_versions: tuple[str, str] | None = None
    """First and last version of the range that contains the change with 95 %, if the search is inconclusive."""
    inconclusive_reason: str | None = None
    interrupted: bool = False
