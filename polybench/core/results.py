"""What was measured: the records of a saved study, and JSON both ways.

Schema history:
    polybench.study/1  first version

Seconds, bytes and counts everywhere; null is "not measured" or "no source", never 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload

SCHEMA = "polybench.study/1"

Status = Literal["ok", "unavailable", "failed", "interrupted"]


class StepSeconds(msgspec.Struct, frozen=True):
    """Seconds of a training step over all samples; p05, p95 and std are null for samples of blocks."""

    median: float
    mean: float
    min: float
    p05: float | None
    p95: float | None
    std: float | None
    n: int
    interval95: tuple[float, float] | None


class Startup(msgspec.Struct, frozen=True):
    """Cold start of a worker, each part on its own; the median over processes."""

    process_seconds: float
    import_seconds: float
    build_seconds: float
    data_seconds: float
    first_step_seconds: float
    second_step_seconds: float
    detail: dict[str, float] = {}

    @property
    def total_seconds(self) -> float:
        return (
            self.process_seconds
            + self.import_seconds
            + self.build_seconds
            + self.data_seconds
            + self.first_step_seconds
        )


class BreakEven(msgspec.Struct, frozen=True):
    """After how many steps the cold start is repaid against another cell; null is "never"."""

    against: str
    steps: int | None


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


class Pipeline(msgspec.Struct, frozen=True):
    """The input pipeline of a cell, where it has one.

    Of a timed step, the training thread spent `waiting_seconds_per_step` for its batch and the rest in
    `compute_seconds_per_step`; null if nobody could tell them apart. The other two are rates of one
    process: of the pipeline when nobody trains, and of training on preloaded batches.
    """

    waiting_seconds_per_step: float | None = None
    compute_seconds_per_step: float | None = None
    pipeline_samples_per_second: float | None = None
    training_samples_per_second: float | None = None


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


class TensorError(msgspec.Struct, frozen=True):
    """One comparison of the parity check; `relative_error` is null when it is not finite.

    norm(a - b) / max(norm(b), 1e-6 norm(all gradients)); for tf32 and bf16 gradients 1 - cosine. Of a batch
    from an input pipeline it is the largest difference of a pixel (0..1), or the share of wrong labels.
    """

    part: Literal["algorithm", "timed"]
    name: str
    step: int
    kind: Literal["loss", "gradient", "weight", "batch"]
    relative_error: float | None
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.relative_error is not None and self.relative_error <= self.tolerance


class ParityPart(msgspec.Struct, frozen=True):
    """The worst errors of one part of the check (null: not finite), and what they may be at most.

    In the timed part, the weight error is that of the update from the engine's own gradient.
    """

    max_loss_error: float | None
    max_gradient_error: float | None
    max_weight_error: float | None
    tolerance: dict[str, float]


class Deviation(msgspec.Struct, frozen=True):
    """A declared convention against the exact rule: how far one tensor's gradient is from exact."""

    what: str
    tensor: str
    error: float
    source: str


class Parity(msgspec.Struct, frozen=True):
    status: Literal["pass", "fail", "skipped"]
    reason: str | None = None
    steps: int | None = None
    batch_size: int | None = None
    algorithm: ParityPart | None = None
    timed: ParityPart | None = None
    deviations: list[Deviation] = []
    tensors: list[TensorError] = []


class Relative(msgspec.Struct, frozen=True):
    """Speed in relation to the baseline cell; above 1 is faster. `interval95` at the 95 % level."""

    baseline: str
    speedup: float
    interval95: tuple[float, float] | None
    scope: Literal["processes", "within one run"]


class DeviceSpeedup(msgspec.Struct, frozen=True):
    cpu_cell: str
    speedup: float
    interval95: tuple[float, float] | None


class TrainedEpoch(msgspec.Struct, frozen=True):
    """One epoch of a whole training; `steps_per_second` is of its tenths. Evaluation is not in `seconds`.

    `loss` is the last step's. `accuracy` is the share of the test images that is classified rightly.
    """

    seconds: float
    steps_per_second: list[float]
    loss: float
    accuracy: float | None


class Training(msgspec.Struct, frozen=True):
    """A whole training from the initial weights of one seed, in a process of its own."""

    seed: int
    epochs: list[TrainedEpoch]

    @property
    def accuracy(self) -> float | None:
        """After the last epoch."""
        return self.epochs[-1].accuracy if self.epochs else None

    def seconds_to(self, accuracy: float) -> float | None:
        """Training time up to the end of the first epoch with at least this accuracy; None if none has it."""
        seconds = 0.0
        for epoch in self.epochs:
            seconds += epoch.seconds
            if epoch.accuracy is not None and epoch.accuracy >= accuracy:
                return seconds
        return None


class TimeToAccuracy(msgspec.Struct, frozen=True):
    """`seconds` of training: the median over seeds, null if only `reached` of `seeds` got there."""

    accuracy: float
    seconds: float | None
    reached: int
    seeds: int


class AccuracyDifference(msgspec.Struct, frozen=True):
    """Test accuracy less the baseline's, after the same epochs: the mean over seeds that both trained from.

    `interval95` is null for one seed.
    """

    baseline: str
    value: float
    interval95: tuple[float, float] | None
    epochs: int
    seeds: int


class Samples(msgspec.Struct, frozen=True):
    """Every sample: seconds of a step, as [process][round][sample]."""

    kind: Literal["step", "block"]
    steps_per_sample: int
    step_seconds: list[list[list[float]]]


class Result(msgspec.Struct, kw_only=True):
    """What one cell gave. A cell that could not be measured has a status, a reason and mostly nulls.

    `accuracy` is the mean over seeds after the last epoch, `accuracy_std` its standard deviation.
    """

    cell: str
    engine: str
    variant: str | None
    device: str
    workload: Workload
    status: Status
    reason: str | None = None
    remedy: str | None = None
    log: str | None = None
    warnings: list[str] = []
    versions: dict[str, Any] = {}
    step_seconds: StepSeconds | None = None
    samples_per_second: float | None = None
    epoch_seconds: float | None = None
    startup: Startup | None = None
    break_even: list[BreakEven] = []
    allocations: Allocations = Allocations()
    gc: GarbageCollection = GarbageCollection()
    pipeline: Pipeline | None = None
    memory: Memory = Memory()
    utilization: Utilization = Utilization()
    energy: Energy = Energy()
    cost: Cost | None = None
    parity: Parity = Parity("skipped", "not asked for")
    losses: list[float] = []
    accuracy: float | None = None
    accuracy_std: float | None = None
    accuracy_difference: AccuracyDifference | None = None
    time_to_accuracy: TimeToAccuracy | None = None
    trainings: list[Training] = []
    relative: Relative | None = None
    device_speedup: DeviceSpeedup | None = None
    samples: Samples | None = None

    @property
    def measured(self) -> bool:
        return self.step_seconds is not None

    @property
    def ranked(self) -> bool:
        """Measured, and not known to have computed something else."""
        return self.measured and self.status != "failed" and self.parity.status != "fail"


class Settings(msgspec.Struct, kw_only=True):
    """What all cells of a study share."""

    model: str
    parameters: int
    dataset: str
    data_sha256: str
    weights_sha256: str
    batches_sha256: str
    batch_size: int
    optimizer: Optimizer
    precision: str
    threads: int
    seed: int
    processes: int
    rounds: int | None
    steps_per_round: int | None
    input: str
    workers: int | None = None
    augment: bool = False
    epochs: int | None
    baseline: str | None
    prices: dict[str, float]


class RoundNoise(msgspec.Struct, frozen=True):
    """What else the machine did during one round; percentages are of one core."""

    process: int
    round: int
    load: float
    other_cpu_percent: float
    steal_percent: float
    swapped_bytes: int
    affected: bool


class Host(msgspec.Struct, kw_only=True):
    hostname: str
    os: str
    cpu: str
    cores: int
    threads: int
    memory_bytes: int
    gpus: list[str]
    governor: str | None
    load: float
    python: str
    noise: list[RoundNoise] = []


class Tool(msgspec.Struct, frozen=True):
    version: str
    commit: str | None


class Published(msgspec.Struct, frozen=True):
    """One number that the author of a study printed: a reference, measured elsewhere.

    `value` is in `unit` and has the author's digits; a pair where a range was printed. `label` is what ran,
    as the author calls it.
    """

    label: str
    quantity: str
    value: float | tuple[float, float]
    unit: str
    hardware: str
    source: str


class About(msgspec.Struct, frozen=True):
    """What a study file says beside its study."""

    title: str | None = None
    published: list[Published] = []


NO_FILE = About()


class StudyDocument(msgspec.Struct, kw_only=True):
    """The saved document. `study` is the whole study as TOML: running it repeats the measurement.

    `title` and `published` come from a study file; none of the published numbers was measured here.
    """

    schema: str = SCHEMA
    id: str
    created: str
    polybench: Tool
    argv: list[str]
    title: str | None = None
    study: str
    settings: Settings
    host: Host
    warnings: list[str] = []
    results: list[Result] = []
    published: list[Published] = []

    def result(self, cell: str) -> Result:
        return next(result for result in self.results if result.cell == cell)


def to_json(study: StudyDocument) -> bytes:
    """The document as indented JSON in UTF-8; raises ValueError on a number that JSON does not have."""
    plain = msgspec.to_builtins(study)
    _reject_non_finite(plain, "study")
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def from_json(text: bytes) -> StudyDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the place."""
    study = msgspec.json.decode(text, type=StudyDocument)
    if study.schema != SCHEMA:
        raise msgspec.ValidationError(f"schema is {study.schema!r}, this version reads {SCHEMA!r}")
    return study


def _reject_non_finite(value: Any, place: str) -> None:
    # msgspec writes nan and inf as null, which would read as "not measured".
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}")
    if isinstance(value, dict):
        for key, part in value.items():
            _reject_non_finite(part, f"{place}.{key}")
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _reject_non_finite(part, f"{place}[{index}]")
