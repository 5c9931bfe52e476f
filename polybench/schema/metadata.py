"""The context of a study: settings, machine, version of polybench, and metadata from the study file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from polybench.networks.optimizers import Optimizer
from polybench.schema.options import RENAME, Amount, Id, NaturalInt, Number, Pass, Positive, PositiveInt

InputKind = Literal["image", "sequence"]
"""The noun for one input of a network."""

Tag = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:=/+-]*$(?!\n)", max_length=60)]
"""A word that selects documents; without spaces, commas and wildcards."""

PublishedMetric = Literal["epoch_time", "step_time", "throughput", "steps_per_second", "gpu_speedup", "accuracy"]
"""The metrics that a published number can be compared with."""


class Settings(msgspec.Struct, kw_only=True, rename=RENAME):
    """The settings that all configurations of a study share."""

    model: str
    parameters: NaturalInt
    input_kind: InputKind = "image"
    dataset: str
    is_official_data: bool = True
    """False for files in the format of CIFAR-10 that are not the published ones."""
    data_sha256: str
    weights_sha256: str
    batches_sha256: str
    pass_: Pass = "training"
    batch_size: PositiveInt
    optimizer: Optimizer
    """The training's; a forward pass has none."""
    precision: str
    """Comma-separated if there are several; the workload of each result has its own."""
    threads: PositiveInt
    malloc: str = "system"
    """See schema.options.Malloc. The default is for documents without this field."""
    pinned_cpus: list[NaturalInt] = []
    """The kernel's numbers of the CPUs that every worker was pinned to; empty if workers were not pinned."""
    seed: NaturalInt
    processes: PositiveInt
    tolerance: Amount = 0.01
    """Smallest difference of step times that sentences name, as a fraction."""
    rounds_per_process: PositiveInt | None
    steps_per_round: PositiveInt | None
    input: str
    loader_workers: NaturalInt | None = None
    augment: bool = False
    epochs: PositiveInt | None
    baseline: str | None
    prices: dict[str, Positive]
    """Dollars per hour by device, for a machine with this number of threads."""

    @property
    def data_name(self) -> str:
        """Name the data: "synthetic images", "cifar10", "cifar10 (other files)"."""
        if self.dataset == "synthetic":
            return f"synthetic {self.input_kind}s"
        return self.dataset if self.is_official_data else f"{self.dataset} (other files)"


class RoundInterference(msgspec.Struct, frozen=True):
    """Activity of other processes during one round; percentages of one core."""

    process: NaturalInt
    round: NaturalInt
    load_average: Amount
    other_cpu_percent: Number
    steal_percent: Number
    swapped_bytes: NaturalInt
    affected: bool


UNKNOWN_HOST = "<host>"
"""Stands for every host name, so two documents with it may come from two machines."""


class Host(msgspec.Struct, kw_only=True):
    """The machine."""

    hostname: str
    os: str
    cpu: str
    cores: PositiveInt
    threads: PositiveInt
    memory_bytes: NaturalInt
    gpus: list[str]
    cpu_governor: str | None
    load_average: Amount
    python: str
    idle_wait_seconds: Amount = 0.0
    """Time spent waiting for an idle machine, limited by `--wait-idle`."""
    busiest_programs: list[str] = []
    """Programs that interfered with timing blocks, the busiest first."""


class ToolVersion(msgspec.Struct, frozen=True):
    """The version of polybench; `commit` is null for an installed package."""

    version: str
    commit: str | None


class Document(msgspec.Struct, kw_only=True):
    """The header of every document that was measured. `created` is UTC, ISO 8601."""

    schema: str
    id: Id | None = None
    created: str
    polybench: ToolVersion
    argv: list[str]
    host: Host
    warnings: list[str] = []

    def header(self) -> dict[str, Any]:
        """Return the fields of a document that is derived from this one."""
        return {name: getattr(self, name) for name in ("id", "created", "polybench", "argv", "host")}


class PhaseSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Wall-clock seconds of each phase of a study; estimates of later studies start from these.

    `process_starts` and `rounds` have one entry per process run. `process_starts` covers process start,
    imports, compilation and warm-up. `parity` is 0 if all checks were cached.
    """

    data: Amount = 0.0
    parity: Amount = 0.0
    process_starts: list[Amount] = []
    rounds: list[Amount] = []
    allocation_count: Amount = 0.0
    native_trace: Amount = 0.0
    trainings: Amount = 0.0
    cold_starts: Amount = 0.0


class Resumed(msgspec.Struct, frozen=True):
    """A resumption of an interrupted study."""

    resumed_at: str
    """UTC, ISO 8601."""
    processes: NaturalInt
    """Process runs that had finished before."""
    trainings: NaturalInt
    """Whole trainings, over all configurations, that had finished before."""


class PublishedResult(msgspec.Struct, frozen=True):
    """A number that the author of a study published: a reference that polybench did not measure."""

    label: str
    """The author's name of the program."""
    quantity: str
    value: Amount | Annotated[tuple[Amount, ...], msgspec.Meta(min_length=2, max_length=2)]
    """In `unit`, with the author's digits; a pair if the author printed a range."""
    unit: str
    hardware: str
    source: str
    configuration: str | None = None
    """The configuration that repeats the author's program; null without one. An accuracy without a
    configuration is compared with every configuration, on any engine and device."""
    epochs: PositiveInt = 1
    """Number of epochs that an `epoch_time` value covers, or after which an `accuracy` value was measured."""
    items_per_epoch: PositiveInt | None = None
    """Images or sequences of the author's epoch; an `epoch_time` is not compared without it."""
    metric: PublishedMetric = "epoch_time"
    """The metric of the configuration to compare with: seconds, items per second, or a ratio."""
    steps: PositiveInt = 1
    """Number of steps that a `step_time` value covers."""
    model: str | None = None
    """The author's network, batch size and use of augmentation. Results with other values are not compared.
    Null if the author does not say, or if it does not matter."""
    batch_size: PositiveInt | None = None
    augment: bool | None = None

    @property
    def count_in_value(self) -> int | None:
        """Number of items of an `epoch_time` or of steps that `value` covers, otherwise 1; None if it is unknown."""
        if self.metric == "epoch_time":
            return None if self.items_per_epoch is None else self.epochs * self.items_per_epoch
        return self.steps if self.metric == "step_time" else 1


class StudyFileMetadata(msgspec.Struct, frozen=True):
    """Contents of a study file or options that are not part of the study."""

    title: str | None = None
    published: list[PublishedResult] = []
    data_sha256: str | None = None
    """Hash of the data of the saved study that is repeated."""
    tags: tuple[Tag, ...] = ()


NO_METADATA = StudyFileMetadata()
