"""What to measure: Study, Workload, Cell. The only place that knows defaults.

Everything here can be judged without the machine's engines and devices: a record that exists is valid,
except for names (engines, models), which their own tables check.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from polybench.core.errors import BadInput
from polybench.core.model import Model
from polybench.core.names import EngineName, check_environment
from polybench.core.optimizers import Momentum, Optimizer, Rate, Schedule, WeightDecay
from polybench.core.prices import device_of

Precision = Literal["fp32", "tf32", "bf16"]
InputMode = Literal["preload", "pipeline"]
Heap = Literal["keep", "system"]
"""What the C library does with memory that is freed: `keep` has it stay in the process, `system` is its own
rule, which gives some of it back to the kernel, depending on what else happens to lie in the heap."""

_LARGEST = 2**63 - 1  # TOML and JSON hold no larger number for every reader
PositiveInt = Annotated[int, Meta(ge=1, le=_LARGEST)]
NaturalInt = Annotated[int, Meta(ge=0, le=_LARGEST)]
PositiveFloat = Annotated[float, Meta(gt=0)]

UNTIMED_STEPS = 2
"""Steps of each block that are not timed: after a reset they allocate gradients and optimizer state anew."""

LARGEST_SHIFT = 4
"""Pixels by which `augment` shifts an image at most, up, down, left or right."""

QUICK_BUDGET = 10.0
"""Seconds that `--quick` is timed for at most: enough for 5 rounds of a few engines."""

_EPOCHS_UNTIL = 20
"""The most epochs of a training `until` some accuracy for which no `epochs` were given."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one training step is, the same for every engine."""

    model: str
    dataset: str
    batch_size: PositiveInt
    optimizer: Optimizer
    precision: Precision
    threads: PositiveInt
    input: InputMode = "preload"
    workers: NaturalInt | None = None
    """Of an input pipeline; 0 prepares batches in the thread that trains. Null where there is no pipeline."""
    augment: bool = False
    replicas: PositiveInt = 1
    """Each trains the whole network on its part of every batch of `batch_size`, and they share `threads`."""


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table: engine x variant x environment x device, numbered when asked for again."""

    engine: str
    variants: tuple[str, ...]
    """Sorted; empty means the plain engine, the code path that its users take."""
    device: str
    repeat: PositiveInt = 1
    precision: Precision | None = None
    """Another one than the study's first."""
    environment: str | None = None
    """A name of the study's `env`."""
    replicas: PositiveInt = 1

    @property
    def variant(self) -> str | None:
        """The variants as one name, `channels_last+compile`; None for the plain engine."""
        return "+".join(self.variants) or None

    @property
    def name(self) -> str:
        """Unique in a study, built as `core.names.EngineName` says: `torch+compile@nightly/cpu/bf16/2x#2`."""
        several = f"{self.replicas}x" if self.replicas > 1 else None
        engine = str(EngineName(self.engine, self.variants, self.environment))
        parts = (engine, self.device, self.precision, several)
        number = f"#{self.repeat}" if self.repeat > 1 else ""
        return "/".join(filter(None, parts)) + number


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """A grid of cells and how to measure them. Durations are in seconds.

    `None` means "derived": the model's own declaration, this machine's threads and devices, or what the
    budget allows. `engines` are names with variants (`torch+compile`), repeats allowed.
    """

    engines: tuple[str, ...] = ("flux", "torch", "tf")
    devices: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    """Environments by the names that engines have behind their @: a folder with `bin/python`, such a program,
    or the folder of an engine's own kind of project."""
    model: str | Model = "lenet"
    """A name, or the network itself, where it came from a file of the user's."""
    data: str = "auto"
    batch_size: PositiveInt | None = None
    optimizer: str | None = None
    learning_rate: Rate | None = None
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    schedule: Schedule | None = None
    precision: Precision | tuple[Precision, ...] = "fp32"
    """Several give each engine as many cells, each checked at its own tolerance."""
    input: InputMode = "preload"
    workers: NaturalInt | None = None
    augment: bool = False
    threads: PositiveInt | None = None
    replicas: PositiveInt | tuple[PositiveInt, ...] = 1
    """Several give each engine as many cells; they share batch and threads of the study."""
    heap: Heap = "keep"
    pin: bool = False
    """Whether all workers run on the same cores, as many as `threads`, no two hyper-threads of one core."""
    seed: NaturalInt = 0
    processes: PositiveInt = 5
    rounds: PositiveInt | None = None
    steps: PositiveInt | None = None
    target: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    epochs: PositiveInt | None = None
    accuracy: bool = False
    until: dict[Literal["accuracy"], Annotated[float, Meta(gt=0, lt=1)]] = {}
    """Train until the test accuracy is at least this, for `epochs` at most."""
    budget: PositiveFloat = 60.0
    patience: Annotated[float, Meta(ge=0)] = 0.0
    """To wait for a quiet machine, in all: before the rounds of a process, and after a disturbance."""
    timeout: PositiveFloat = 600.0
    parity: bool = True
    parity_steps: PositiveInt = 3
    baseline: str | None = None
    prices: dict[str, PositiveFloat] = {}
    """Dollars an hour; see core.prices for the names."""
    metrics: bool = True
    """Whether allocations, memory, utilization and energy are looked at, beside the times."""
    handicaps: dict[str, PositiveFloat] = {}
    """Test only: cell -> busy wait added to each of its samples, as a fraction of its median step."""

    def __post_init__(self) -> None:
        if not self.engines:
            raise BadInput("no engines given; try --engines torch,tf")
        self._check_environments()
        for device in (*(self.devices or ()), *map(device_of, self.prices)):
            if not _DEVICE.fullmatch(device):
                raise BadInput(f"unknown device {device!r}; devices are cpu, cuda, cuda:1, ...")
        if not self.precisions:
            raise BadInput("no precision given; try --precision fp32")
        if len(set(self.precisions)) < len(self.precisions):
            raise BadInput(f"--precision names one twice: {','.join(self.precisions)}")
        if self.devices is not None:
            check_tf32(self.precisions, self.devices)
        if self.input != "pipeline" and (self.augment or self.workers is not None):
            option = "--augment" if self.augment else "--workers"
            raise BadInput(f"{option} is for an input pipeline; add --input pipeline")
        if not self.replica_counts or len(set(self.replica_counts)) < len(self.replica_counts):
            raise BadInput("--replicas: give different numbers of replicas, for example --replicas 1,2")
        if self.input == "pipeline" and self.replica_counts != (1,):
            raise BadInput("--replicas with --input pipeline: replicas train on preloaded batches only")
        self._refuse_infinite()

    def _check_environments(self) -> None:
        for one in self.env:
            check_environment(one)
        for text in self.engines:
            name = EngineName.read(text).environment
            if name is not None and name not in self.env:
                known = f"environments are: {', '.join(self.env)}" if self.env else "say where it is"
                raise BadInput(f"{text}: no environment is called {name!r}; {known} (--env {name}=PATH)")

    def _refuse_infinite(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            for number in value.values() if isinstance(value, dict) else (value,):
                if isinstance(number, float) and not math.isfinite(number):
                    raise BadInput(f"{name} is {number}; write a finite number")

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """In the order in which they were asked for."""
        return (self.precision,) if isinstance(self.precision, str) else self.precision

    @property
    def replica_counts(self) -> tuple[int, ...]:
        """In the order in which they were asked for."""
        return (self.replicas,) if isinstance(self.replicas, int) else self.replicas

    def quick(self) -> Study:
        """The same in one process and a short timed part: numbers at once, and no verdict."""
        return msgspec.structs.replace(self, processes=1, budget=min(self.budget, QUICK_BUDGET))


def environments_of(engines: Iterable[str], environments: Mapping[str, str]) -> dict[str, str]:
    """Those environments that one of these engines has."""
    used = {EngineName.read(text).environment for text in engines}
    return {name: path for name, path in environments.items() if name in used}


def unused_environments(study: Study) -> list[str]:
    """The names of those that none of the study's engines has."""
    used = environments_of(study.engines, study.env)
    return [name for name in study.env if name not in used]


def refuse_unused_environments(study: Study) -> None:
    """Raise BadInput for an environment that none of the study's engines has."""
    for name in unused_environments(study):
        plain = EngineName.read(study.engines[0])._replace(environment=name)
        raise BadInput(f"--env {name}: no engine has it; add one to --engines: {plain}")


def trains(study: Study) -> bool:
    """Whether whole trainings belong to the study, besides the rounds."""
    return study.epochs is not None or study.accuracy or bool(study.until)


def most_epochs(study: Study) -> int:
    """Epochs of each whole training, unless it reaches the accuracy asked for before."""
    return study.epochs or (_EPOCHS_UNTIL if study.until else 1)


def evaluates(study: Study) -> bool:
    """Whether these trainings are evaluated on the test images."""
    return study.accuracy or bool(study.until)


def check_tf32(precisions: tuple[Precision, ...], devices: tuple[str, ...]) -> None:
    """Refuse `tf32` where no device has it, or the CPU would be left without any precision.

    Raises:
        BadInput: with what to ask for instead.
    """
    if "tf32" not in precisions:
        return
    if all(device == "cpu" for device in devices):
        raise BadInput("precision tf32 exists on cuda only; add --devices cuda, or use --precision fp32")
    if "cpu" in devices and precisions == ("tf32",):
        raise BadInput("precision tf32 exists on cuda only; use --precision fp32 for the cpu")


def cells(
    engines: tuple[str, ...],
    devices: tuple[str, ...],
    precisions: tuple[Precision, ...] = ("fp32",),
    replica_counts: tuple[int, ...] = (1,),
) -> tuple[Cell, ...]:
    """The grid, in the order in which it was asked for; a repeat of a cell gets a number.

    `tf32` has no cells on the CPU.
    """
    grid: list[Cell] = []
    seen: dict[Cell, int] = {}
    for device, text, precision, count in itertools.product(devices, engines, precisions, replica_counts):
        if (device, precision) == ("cpu", "tf32"):
            continue
        engine, variants, environment = EngineName.read(text)
        other = None if precision == precisions[0] else precision
        first = Cell(engine, variants, device, precision=other, environment=environment, replicas=count)
        seen[first] = seen.get(first, 0) + 1
        grid.append(msgspec.structs.replace(first, repeat=seen[first]))
    return tuple(grid)
