"""Under which circumstances a study was measured: settings, machine, program, and what its file says."""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.core.optimizers import Optimizer

Unit = Literal["image", "sequence"]
"""What one input of a network is called."""

Compared = Literal["epoch_time", "step_time", "throughput", "steps_per_second", "device_speedup", "accuracy"]
"""The metrics with which what an author printed can be compared."""


class Settings(msgspec.Struct, kw_only=True):
    """What all cells of a study share."""

    model: str
    parameters: int
    unit: Unit = "image"
    dataset: str
    data_sha256: str
    weights_sha256: str
    batches_sha256: str
    batch_size: int
    optimizer: Optimizer
    precision: str
    """Several are separated by commas; each result's workload has its own."""
    threads: int
    heap: str = "system"
    """See core.spec.Heap; documents that do not say were measured with the C library's own rule."""
    pinned: list[int] = []
    """The CPUs, by the kernel's numbers, on which every worker ran; empty where they were not bound."""
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
    """Device -> dollars an hour of a machine with as many threads."""


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
    """The machine, and what else it did in each round."""

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
    waited_seconds: float = 0.0
    """For a quiet machine, as long as `--patience` allowed."""
    busiest: list[str] = []
    """Programs that were seen to disturb blocks, the busiest first."""


class Tool(msgspec.Struct, frozen=True):
    """Which polybench it was; `commit` is null for an installed package."""

    version: str
    commit: str | None


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that passed in each part of a study, whatever the machine did; later studies expect as much.

    `starts` and `rounds` have an entry for each replicate. `starts` are processes, imports, compilation and
    warm-up; `parity` is 0 where earlier checks were taken.
    """

    data: float = 0.0
    parity: float = 0.0
    starts: list[float] = []
    rounds: list[float] = []
    counting: float = 0.0
    native: float = 0.0
    trainings: float = 0.0


class Resumed(msgspec.Struct, frozen=True):
    """That a study was stopped, and went on."""

    at: str
    """UTC, ISO 8601."""
    processes: int
    """Replicates that were finished before."""
    trainings: int
    """Whole trainings, of all cells, that were finished before."""


class Published(msgspec.Struct, frozen=True):
    """One number that the author of a study printed: a reference, measured elsewhere."""

    label: str
    """What ran, as the author calls it."""
    quantity: str
    value: float | tuple[float, float]
    """In `unit`, with the author's digits; a pair where a range was printed."""
    unit: str
    hardware: str
    source: str
    cell: str | None = None
    """Which cell repeats what ran; null where none does. An accuracy without one is compared with every
    cell's, whatever the engine and the device."""
    epochs: int = 1
    """Whose time `value` is, where it is compared with `epoch_time`; after which it was measured, where it is
    compared with `accuracy`."""
    metric: Compared = "epoch_time"
    """That of the cell which `value` is compared with: seconds, what is done in a second, or a ratio."""
    steps: int = 1
    """Whose time `value` is, where it is compared with `step_time`."""
    model: str | None = None
    """The network, the batch size and whether images were augmented; what was measured with another is not
    compared. Null where the author does not say, or it does not matter."""
    batch_size: int | None = None
    augment: bool | None = None

    @property
    def times(self) -> int:
        """How many of the metric's own epochs or steps `value` is of."""
        return {"epoch_time": self.epochs, "step_time": self.steps}.get(self.metric, 1)


class Background(msgspec.Struct, frozen=True):
    """What a study file says beside its study."""

    title: str | None = None
    published: list[Published] = []
    data_sha256: str | None = None
    """Of the data of the saved study that is measured again."""


NO_BACKGROUND = Background()
