"""The results of one configuration: times, comparisons, trainings.

All times are in seconds. Null means "not measured" or "no source", never 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from polybench.schema import units
from polybench.schema.options import (
    Amount,
    ConfigurationName,
    EngineName,
    NaturalInt,
    Number,
    Positive,
    PositiveInt,
    Seconds,
    Workload,
)
from polybench.schema.parity import UNCHECKED, ParityCheck
from polybench.schema.resources import (
    Allocations,
    Cost,
    Energy,
    GarbageCollection,
    Interference,
    Memory,
    PeakComparison,
    Utilization,
)

Interval = tuple[Number, Number]
"""A 95 % interval: its lower and upper bound."""

Status = Literal["ok", "unavailable", "failed", "interrupted"]

SINGLE_PROCESS = "only one process, and another one may differ; use --processes 5"
"""Reason of a comparison within one process, because another process may differ."""

BUSY = "(busy)"
"""Text in place of a step time all of whose timing blocks have interference."""

BUSY_HINT = "stop other programs, or let polybench wait: polybench compare --wait-idle 60s"
STEAL = "the hypervisor gave the cores to other machines"
STEAL_REMEDY = "measure when the host is idle"
STEAL_HINT = f"{STEAL_REMEDY}, or let polybench wait: polybench compare --wait-idle 60s"

INTERFERENCE = "interference"
"""Beginning of the reason of a comparison whose timing blocks have interference."""

SIGNIFICANCE_LEVEL = 0.05
"""Largest probability of a false sentence in a table."""

Scope = Literal["processes", "single_process"]
"""The source of an interval's variation: several process runs, or the rounds of one."""


class Program(msgspec.Struct, frozen=True):
    """The program that an engine runs; `polybench export ID` prints its text."""

    text: str
    sha256: str

    def __post_init__(self) -> None:
        if self.sha256 != _sha256(self.text):
            raise ValueError("the SHA-256 of a program is not that of its text")

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the program of a text."""
        return cls(text, _sha256(text))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class StepTime(msgspec.Struct, frozen=True):
    """Seconds of a training step, as `stats.statistics.summarize_step_times` computes them.

    `mean` is the mean over processes of the mean of all their steps without interference, with everything that
    happens in a step; a training consists of such steps. `ci95` is its interval, null for a single round. `median` is
    a typical step, without what happens in fewer than half of the steps, such as pauses of the garbage collector. The
    other fields are over all step times; p05, p95 and std are null if each value is the mean of a block.
    """

    mean: Seconds
    ci95: tuple[Positive, Positive] | None
    median: Seconds
    min: Seconds
    p05: Amount | None
    p95: Amount | None
    std: Amount | None
    n: PositiveInt


class Startup(msgspec.Struct, frozen=True):
    """A start of a program or of a worker, phase by phase, to the end of its second step."""

    process_seconds: Amount
    import_seconds: Amount
    build_seconds: Amount
    data_seconds: Amount
    first_step_seconds: Amount
    second_step_seconds: Amount
    detail: dict[str, Number] = {}

    @property
    def cold_start_seconds(self) -> float:
        """Seconds from the start of the process to the end of the first step."""
        return (
            self.process_seconds
            + self.import_seconds
            + self.build_seconds
            + self.data_seconds
            + self.first_step_seconds
        )


class ColdStart(Startup, frozen=True):
    """The mean start of the program of `polybench export --train` alone, as in a user's first run.

    For an engine without such a program (`starts` is 0), it is the start of a worker alone.
    """

    starts: NaturalInt = 0
    ci95: Interval | None = None
    """Interval of the whole cold start over several starts."""
    tool_seconds: Amount | None = None
    """Seconds that polybench's own code adds to the start of a worker; in no column."""


class BreakEven(msgspec.Struct, frozen=True):
    """Number of steps after which a longer cold start pays off against the baseline; null means never."""

    baseline: str
    steps: NaturalInt | None


class Pipeline(msgspec.Struct, frozen=True):
    """The input pipeline of a configuration; rates of one process."""

    data_wait_seconds_per_step: Amount | None = None
    """Wait of the training thread for its batch, per timed step; null if the engine cannot measure it."""
    compute_seconds_per_step: Number | None = None
    """The rest of that step."""
    pipeline_items_per_second: Positive | None = None
    """The pipeline without training."""
    training_items_per_second: Positive | None = None
    """Training on preloaded batches."""

    @property
    def slower_stage(self) -> float | None:
        """Items per second of the slower of its two stages: no step with the pipeline is faster than both."""
        rates = self.pipeline_items_per_second, self.training_items_per_second
        return min(rates) if all(rates) else None  # type: ignore[type-var]


class Comparison(msgspec.Struct, frozen=True):
    """Speed relative to another configuration, the baseline; above 1 is faster."""

    baseline: str
    speedup: Positive
    ci95: tuple[Positive, Positive] | None
    scope: Scope = "processes"
    inconclusive_reason: str | None = None
    """Reason why the comparison is inconclusive whatever its interval: interference."""
    p_value: Amount | None = None
    """Probability of such a difference by chance, corrected for the number of comparisons in the table (Holm)."""
    side_by_side: bool = True
    """False if memory could not hold both workers, so that their rounds were measured one group after the other."""

    @property
    def is_inconclusive(self) -> bool:
        """True if the ratio supports no conclusion."""
        return self.is_significant is None

    @property
    def is_significant(self) -> bool | None:
        """True if chance is an unlikely cause; None for an inconclusive comparison or a single process.

        Without a p-value, the interval decides: it excludes 1.
        """
        if self.inconclusive_reason is not None or self.scope == "single_process" or self.ci95 is None:
            return None
        if self.p_value is not None:
            return self.p_value < SIGNIFICANCE_LEVEL
        low, high = self.ci95
        return not low <= 1 <= high


def largest_change(interval: Interval) -> float:
    """Return the largest relative change that an interval of a speed ratio contains."""
    low, high = interval
    return max(high, 1 / low) - 1


def busy_reason(interference: Interference, programs: Sequence[str]) -> str:
    """Return why a configuration without a quiet timing block has no step time."""
    if interference.is_mostly_steal:
        return f"{STEAL} in every timing block"
    names = f" ({', '.join(programs)})" if programs else ""
    return f"other programs{names} used the cores in every timing block"


def busy_hint(interference: Interference) -> str:
    """Return what to do about timing blocks with interference."""
    return STEAL_HINT if interference.is_mostly_steal else BUSY_HINT


def mark_inconclusive(text: str, reason: str | None) -> str:
    """Return the text of a ratio: marked if it is of one process, and replaced if it is inconclusive otherwise."""
    if not reason or not text or text == units.NO_RESULT:
        return text
    return f"{text.partition(' ')[0]} (one run)" if reason == SINGLE_PROCESS else units.NO_RESULT


class BaselineComparison(Comparison, frozen=True):
    """Comparison with the study's baseline, including the ratio of typical steps (`StepTime.median`)."""

    typical_speedup: Positive | None = None


class Scaling(Comparison, frozen=True, kw_only=True):
    """Comparison with the same configuration with one replica, at the same batch size.

    `efficiency` is `speedup` / `devices`. `devices` is the ratio of the numbers of devices: the number of
    GPUs, or 1 on the CPU, where any number of replicas shares the study's threads.
    """

    devices: PositiveInt
    efficiency: Positive


Rounds = Annotated[list[Annotated[list[Seconds], Meta(min_length=1)]], Meta(min_length=1)]
"""Step times of a process."""


class StepTimes(msgspec.Struct, frozen=True):
    """All step times: seconds per step, as [process][round][value].

    With resolution "block", each value is the mean of `steps_per_value` steps.
    """

    resolution: Literal["step", "block"]
    steps_per_value: PositiveInt
    values: Annotated[list[Rounds], Meta(min_length=1)]


class TrainedEpoch(msgspec.Struct, frozen=True):
    """An epoch of a whole training."""

    seconds: Positive
    """Training time, without evaluation."""
    steps_per_second: list[Positive]
    """For each tenth of the epoch; for the whole epoch if calls of the engine have an overhead."""
    loss: Number
    """Loss of the last step, or the loss that the engine reports for its last call."""
    accuracy: Amount | None
    """Fraction of the predictions for the test images that are correct."""
    test_loss: Number | None = None
    """Mean cross-entropy over these predictions, without label smoothing; None if it is not finite."""


class Training(msgspec.Struct, frozen=True):
    """A training from the initial weights of one seed, in its own process.

    `complete` is false if the training was interrupted or failed before its last epoch and before its target.
    """

    seed: NaturalInt
    epochs: list[TrainedEpoch]
    complete: bool = True

    @property
    def accuracy(self) -> float | None:
        """Accuracy after the last epoch."""
        return self.epochs[-1].accuracy if self.epochs else None

    @property
    def test_loss(self) -> float | None:
        """Test loss after the last epoch."""
        return self.epochs[-1].test_loss if self.epochs else None

    def time_to_accuracy(self, accuracy: float) -> float | None:
        """Training time until the end of the first epoch with at least this accuracy; None if none has it."""
        return self._time_to(lambda epoch: epoch.accuracy is not None and epoch.accuracy >= accuracy)

    def time_to_loss(self, loss: float) -> float | None:
        """Training time until the end of the first epoch with at most this test loss; None if none has it."""
        return self._time_to(lambda epoch: epoch.test_loss is not None and epoch.test_loss <= loss)

    def _time_to(self, is_reached: Callable[[TrainedEpoch], bool]) -> float | None:
        seconds = 0.0
        for epoch in self.epochs:
            seconds += epoch.seconds
            if is_reached(epoch):
                return seconds
        return None


class TimeToAccuracy(msgspec.Struct, frozen=True):
    """Training time to an accuracy: the median over seeds, null if not all `seeds` reached it.

    Only complete trainings count.
    """

    accuracy: Amount
    seconds: Positive | None
    seeds_reached: NaturalInt
    seeds: NaturalInt


class TimeToLoss(msgspec.Struct, frozen=True):
    """Training time to a test loss, as in `TimeToAccuracy`."""

    loss: Number
    seconds: Positive | None
    seeds_reached: NaturalInt
    seeds: NaturalInt


class AccuracyDifference(msgspec.Struct, frozen=True):
    """Test accuracy minus the baseline's after the same epochs: the mean over the seeds that both used.

    Only complete trainings count. `ci95` is null for one seed.
    """

    baseline: str
    value: Number
    ci95: Interval | None
    epochs: PositiveInt
    seeds: NaturalInt
    p_value: Amount | None = None
    """As in `Comparison`."""

    @property
    def is_significant(self) -> bool | None:
        """As in `Comparison`; None for one seed."""
        if self.ci95 is None:
            return None
        return self.p_value < SIGNIFICANCE_LEVEL if self.p_value is not None else not self.ci95[0] <= 0 <= self.ci95[1]


class Communication(msgspec.Struct, frozen=True):
    """The step time saved without the exchange of gradients; exchange hidden behind computation counts as 0.

    It includes the wait for a slower replica. It is a difference of two times; 0 means too small to measure.
    """

    seconds_per_step: Number
    fraction: Amount
    """Fraction of a step with the exchange, measured in the same rounds."""
    source: str


class ConfigurationStatus(msgspec.Struct, kw_only=True):
    """A configuration and its status. `reason` and `hint` are null if they do not apply.

    If `busy`, all of its timing blocks have interference, so it has no step time.
    """

    configuration: ConfigurationName
    engine: ConfigurationName
    variant: ConfigurationName | None
    environment: ConfigurationName | None = None
    """The name of `--env`; null is the Python that runs polybench."""
    device: ConfigurationName
    status: Status
    reason: str | None = None
    hint: str | None = None
    busy: bool = False


class Result(ConfigurationStatus, kw_only=True):
    """The results of one configuration. If it could not be measured, most fields are null.

    `accuracy` and `test_loss` are means over complete trainings after the last epoch, `accuracy_std` and
    `test_loss_std` their standard deviations.
    """

    workload: Workload
    world_size: PositiveInt = 1
    """Processes of each worker: the number of replicas, if replicas are processes."""
    log_path: str | None = None
    caveat: str | None = None
    """The work that step times leave out or add, for a variant that is not for production. polybench never recommends
    such a configuration, and names it in no sentence."""
    warnings: list[str] = []
    versions: dict[str, Any] = {}
    program: Program | None = None
    """The program that was timed; null for an engine whose step is not a program of its own."""
    code_fingerprint: str | None = None
    """A hash of every file that a worker had loaded before its first step; it differs between machines."""
    step_time: StepTime | None = None
    items_per_second: Positive | None = None
    tokens_per_second: Positive | None = None
    epoch_seconds: Positive | None = None
    startup: ColdStart | None = None
    python_call_overhead_seconds: Number | None = None
    """Extra time of a call of the engine from Python, which no step time includes: for Flux the bridge to
    Julia, and the collections that `gc_off` runs between steps. The median over timing blocks."""
    break_even_steps: list[BreakEven] = []
    allocations: Allocations = Allocations()
    gc: GarbageCollection = GarbageCollection()
    pipeline: Pipeline | None = None
    memory: Memory = Memory()
    utilization: Utilization = Utilization()
    energy: Energy = Energy()
    interference: Interference = Interference()
    cost: Cost | None = None
    peak: PeakComparison | None = None
    parity: ParityCheck = UNCHECKED
    losses: list[Number] = []
    accuracy: Amount | None = None
    accuracy_std: Amount | None = None
    accuracy_difference: AccuracyDifference | None = None
    time_to_accuracy: TimeToAccuracy | None = None
    test_loss: Number | None = None
    test_loss_std: Amount | None = None
    time_to_loss: TimeToLoss | None = None
    trainings: list[Training] = []
    vs_baseline: BaselineComparison | None = None
    gpu_speedup: Comparison | None = None
    """Comparison with the same engine on the CPU."""
    scaling: Scaling | None = None
    communication: Communication | None = None
    step_times: StepTimes | None = None

    @property
    def engine_name(self) -> str:
        """The engine as on the command line: `torch+compile@nightly`."""
        variants = tuple(self.variant.split("+")) if self.variant else ()
        return str(EngineName(self.engine, variants, self.environment))

    @property
    def has_target(self) -> bool:
        """True if its trainings ended as soon as they reached an accuracy or a loss."""
        return self.time_to_accuracy is not None or self.time_to_loss is not None

    @property
    def nested_step_times(self) -> list[list[list[float]]]:
        """All step times in seconds, as [process][round][value]; empty if not measured."""
        return self.step_times.values if self.step_times else []

    @property
    def step_seconds(self) -> float:
        """Seconds of a mean step; the configuration must have been measured."""
        assert self.step_time is not None
        return self.step_time.mean

    def seconds_without_collection(self, tolerance: float) -> float | None:
        """Return a mean step without the garbage collector's part; None unless that and the typical step are notable.

        The typical step contains what happens in most steps, so it must be shorter than the mean step by more than
        the tolerance.
        """
        step, collection = self.step_time, self.gc.seconds_per_step
        if step is None or collection is None or min(collection, step.mean - step.median) <= tolerance * step.mean:
            return None
        return step.mean - collection

    @property
    def has_wide_step(self) -> bool:
        """True if the interval of the mean step reaches from below half of it to above twice."""
        step = self.step_time
        return step is not None and units.is_wide(step.mean, step.ci95)

    @property
    def is_measured(self) -> bool:
        """True if it has step times."""
        return self.step_time is not None

    @property
    def is_ranked(self) -> bool:
        """True if it was measured, did not fail, and did not fail its parity check."""
        return self.is_measured and self.status != "failed" and self.parity.status != "fail"

    @property
    def is_for_production(self) -> bool:
        """True if it is ranked, and its step times are those of a real training."""
        return self.is_ranked and self.caveat is None


class EndedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a result that lists show and repetitions of a study compare, in the end of a log."""

    is_for_production: bool = True
    """See `Result`."""
    is_inconclusive: bool = False
    """True if its comparison with the baseline supports no conclusion."""
    ci95: Interval | None = None
    """95 % interval of the mean step."""
    processes: NaturalInt = 0
    """Process runs with step times; 0 if it failed, or if interference was excessive."""
    versions: dict[str, Any] = {}
    """Versions of framework and libraries; `build` is a dictionary."""

    @classmethod
    def of(cls, result: Result) -> EndedResult:
        """Return the part of a result."""
        compared, is_complete = result.vs_baseline, result.status == "ok" and result.parity.status != "fail"
        return cls(
            is_for_production=result.is_for_production,
            is_inconclusive=compared is not None
            and compared.baseline != result.configuration
            and (compared.inconclusive_reason is not None or compared.scope == "single_process"),
            ci95=result.step_time.ci95 if result.step_time else None,
            processes=len(result.nested_step_times) if is_complete and not result.interference.is_excessive else 0,
            versions={name: one for name, one in result.versions.items() if name not in ("environment", "inherited")},
        )


def library_versions(versions: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of framework and libraries; other entries of `Result.versions` are dictionaries."""
    return {name: version for name, version in versions.items() if isinstance(version, str)}


def status_fields(result: Result) -> dict[str, Any]:
    """Return the fields of a configuration's status."""
    return {name: getattr(result, name) for name in ConfigurationStatus.__struct_fields__}
