"""Specification of a measurement: Study, Workload, Configuration. The only place with defaults.

A record checks itself when it is created. Only the names of engines and models are checked elsewhere, against
their tables.
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
from polybench.core.optimizers import LearningRateSchedule, Momentum, Optimizer, Rate, WeightDecay
from polybench.core.prices import parse_price_key

Precision = Literal["fp32", "tf32", "bf16"]
InputMode = Literal["preload", "pipeline"]
Malloc = Literal["retain", "system"]
"""Policy of the C library for freed memory: `retain` keeps it in the process, `system` is the library's
default, which returns some of it to the kernel, depending on the layout of the heap."""

_MAX_INTEGER = 2**63 - 1  # TOML and JSON hold no larger number for every reader
PositiveInt = Annotated[int, Meta(ge=1, le=_MAX_INTEGER)]
NaturalInt = Annotated[int, Meta(ge=0, le=_MAX_INTEGER)]
PositiveFloat = Annotated[float, Meta(gt=0)]

WARMUP_STEPS_PER_BLOCK = 2
"""Untimed steps at the start of each timing block: after a reset they reallocate gradients and optimizer
state."""

MAX_CROP_OFFSET = 4
"""Largest shift of an image by `augment`, in pixels, in each direction."""

QUICK_BUDGET = 10.0
"""Maximum timed seconds of `--quick`: enough for 5 rounds of a few engines."""

_DEFAULT_MAX_EPOCHS = 20
"""Maximum epochs of a training with a target accuracy, if `epochs` is not given."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training step, the same for every engine."""

    model: str
    dataset: str
    batch_size: PositiveInt
    optimizer: Optimizer
    precision: Precision
    threads: PositiveInt
    input: InputMode = "preload"
    loader_workers: NaturalInt | None = None
    """Workers of the input pipeline; 0 prepares batches in the training thread. Null without a pipeline."""
    augment: bool = False
    replicas: PositiveInt = 1
    """Copies of the network; each trains on its shard of every batch of `batch_size`. They share
    `threads`."""


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table: engine, variants, environment and device. Equal rows are numbered by `repeat`."""

    engine: str
    variants: tuple[str, ...]
    """Sorted; empty for the plain engine, the code path of its typical user."""
    device: str
    repeat: PositiveInt = 1
    precision: Precision | None = None
    """Null for the study's first precision."""
    environment: str | None = None
    """A name of the study's `env`."""
    replicas: PositiveInt = 1

    @property
    def variant(self) -> str | None:
        """The variants joined into one name, `channels_last+compile`; None for the plain engine."""
        return "+".join(self.variants) or None

    @property
    def name(self) -> str:
        """Unique in a study, built as `core.names.EngineName` says: `torch+compile@nightly/cpu/bf16/2x#2`."""
        replicas = f"{self.replicas}x" if self.replicas > 1 else None
        engine = str(EngineName(self.engine, self.variants, self.environment))
        parts = (engine, self.device, self.precision, replicas)
        repeat = f"#{self.repeat}" if self.repeat > 1 else ""
        return "/".join(filter(None, parts)) + repeat


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """A grid of configurations and the way to measure them. Durations are in seconds.

    `None` means a derived value: declared by the model, available on this machine, or allowed by the budget.
    `engines` are names with variants (`torch+compile`); repeats are allowed.
    """

    engines: tuple[str, ...] = ("flux", "torch", "tf")
    devices: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    """Environments by name; an engine selects one with @NAME. Each is a folder with `bin/python`, the path of
    such a program, or a project folder of the engine's language."""
    model: str | Model = "lenet"
    """A name, or the network itself if it came from a user's file."""
    data: str = "auto"
    batch_size: PositiveInt | None = None
    optimizer: str | None = None
    learning_rate: Rate | None = None
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    lr_schedule: LearningRateSchedule | None = None
    precision: Precision | tuple[Precision, ...] = "fp32"
    """Each precision is a separate configuration, checked at its own tolerance."""
    input: InputMode = "preload"
    loader_workers: NaturalInt | None = None
    augment: bool = False
    threads: PositiveInt | None = None
    replicas: PositiveInt | tuple[PositiveInt, ...] = 1
    """Each number of replicas is a separate configuration with the study's batch size and threads."""
    malloc: Malloc = "retain"
    pin_cpus: bool = False
    """Pin all workers to the same `threads` cores, with at most one hyper-thread of each core."""
    seed: NaturalInt = 0
    processes: PositiveInt = 5
    rounds_per_process: PositiveInt | None = None
    steps_per_round: PositiveInt | None = None
    margin: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    """Requested margin of error of each speed-up: the half width of its interval, as a fraction."""
    epochs: PositiveInt | None = None
    accuracy: bool = False
    target_accuracy: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Train until the test accuracy reaches this value, for at most `epochs`."""
    budget: PositiveFloat = 60.0
    wait_idle: Annotated[float, Meta(ge=0)] = 0.0
    """Maximum total wait for an idle machine: before the rounds of a process, and after interference."""
    timeout: PositiveFloat = 600.0
    parity: bool = True
    parity_steps: PositiveInt = 3
    baseline: str | None = None
    prices: dict[str, PositiveFloat] = {}
    """Dollars per hour; see core.prices for the keys."""
    metrics: bool = True
    """Measure allocations, memory, utilization and energy in addition to times."""
    injected_delays: dict[str, PositiveFloat] = {}
    """For tests: configuration -> busy wait added to each of its steps, as a fraction of the median untimed step."""

    def __post_init__(self) -> None:
        if not self.engines:
            raise BadInput("no engines given: try --engines torch,tf")
        self._check_environments()
        for device in (*(self.devices or ()), *map(parse_price_key, self.prices)):
            if not _DEVICE.fullmatch(device):
                raise BadInput(f"unknown device {device!r}: expected cpu, cuda or cuda:1")
        if not self.precisions:
            raise BadInput("no precision given: try --precision fp32")
        if len(set(self.precisions)) < len(self.precisions):
            raise BadInput(f"duplicate precision in --precision {','.join(self.precisions)}: remove one")
        if self.devices is not None:
            check_tf32(self.precisions, self.devices)
        if self.input != "pipeline" and (self.augment or self.loader_workers is not None):
            option = "--augment" if self.augment else "--loader-workers"
            raise BadInput(f"{option} requires an input pipeline; add --input pipeline")
        if not self.replica_counts or len(set(self.replica_counts)) < len(self.replica_counts):
            raise BadInput("--replicas: expected distinct numbers, for example --replicas 1,2")
        if self.input == "pipeline" and self.replica_counts != (1,):
            raise BadInput(
                "--replicas with --input pipeline: replicas train on preloaded batches only; drop one option"
            )
        self._reject_infinite()

    def _check_environments(self) -> None:
        for name in self.env:
            check_environment(name)
        for text in self.engines:
            environment = EngineName.parse(text).environment
            if environment is not None and environment not in self.env:
                known = f"known environments: {', '.join(self.env)}; " if self.env else ""
                raise BadInput(f"{text}: unknown environment {environment!r}; {known}add --env {environment}=PATH")

    def _reject_infinite(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            for number in value.values() if isinstance(value, dict) else (value,):
                if isinstance(number, float) and not math.isfinite(number):
                    raise BadInput(f"{name} is {number}: expected a finite number")

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The precisions in the requested order."""
        return (self.precision,) if isinstance(self.precision, str) else self.precision

    @property
    def replica_counts(self) -> tuple[int, ...]:
        """The numbers of replicas in the requested order."""
        return (self.replicas,) if isinstance(self.replicas, int) else self.replicas

    def quick(self) -> Study:
        """Return this study with one process and a short budget: fast results without a verdict."""
        return msgspec.structs.replace(self, processes=1, budget=min(self.budget, QUICK_BUDGET))


def environments_of(engines: Iterable[str], environments: Mapping[str, str]) -> dict[str, str]:
    """Return the environments that at least one of these engines uses."""
    used = {EngineName.parse(text).environment for text in engines}
    return {name: path for name, path in environments.items() if name in used}


def unused_environments(study: Study) -> list[str]:
    """Return the names of the environments that none of the study's engines uses."""
    used = environments_of(study.engines, study.env)
    return [name for name in study.env if name not in used]


def reject_unused_environments(study: Study) -> None:
    """Raise BadInput for an environment that none of the study's engines uses."""
    for name in unused_environments(study):
        plain = EngineName.parse(study.engines[0])._replace(environment=name)
        raise BadInput(f"--env {name}: no engine uses it; add one to --engines, for example {plain}")


def does_train(study: Study) -> bool:
    """Return True if the study includes whole trainings."""
    return study.epochs is not None or study.accuracy or study.target_accuracy is not None


def max_epochs(study: Study) -> int:
    """Return the maximum epochs of a training; it ends earlier if it reaches the target accuracy."""
    return study.epochs or (1 if study.target_accuracy is None else _DEFAULT_MAX_EPOCHS)


def does_evaluate(study: Study) -> bool:
    """Return True if the study's trainings are evaluated on the test images."""
    return study.accuracy or study.target_accuracy is not None


def check_tf32(precisions: tuple[Precision, ...], devices: tuple[str, ...]) -> None:
    """Reject `tf32` if no device supports it, or if the CPU would have no precision left.

    Raises:
        BadInput: the message names the option to use instead.
    """
    if "tf32" not in precisions:
        return
    if all(device == "cpu" for device in devices):
        raise BadInput("precision tf32 exists on cuda only; add --devices cuda, or use --precision fp32")
    if "cpu" in devices and precisions == ("tf32",):
        raise BadInput("precision tf32 exists on cuda only; use --precision fp32 for the cpu")


def configuration_grid(
    engines: tuple[str, ...],
    devices: tuple[str, ...],
    precisions: tuple[Precision, ...] = ("fp32",),
    replica_counts: tuple[int, ...] = (1,),
) -> tuple[Configuration, ...]:
    """Return all configurations in the requested order; repeated configurations are numbered.

    The CPU has no `tf32` configurations.
    """
    grid: list[Configuration] = []
    seen: dict[Configuration, int] = {}
    for device, text, precision, count in itertools.product(devices, engines, precisions, replica_counts):
        if (device, precision) == ("cpu", "tf32"):
            continue
        engine, variants, environment = EngineName.parse(text)
        other = None if precision == precisions[0] else precision
        first = Configuration(engine, variants, device, precision=other, environment=environment, replicas=count)
        seen[first] = seen.get(first, 0) + 1
        grid.append(msgspec.structs.replace(first, repeat=seen[first]))
    return tuple(grid)
