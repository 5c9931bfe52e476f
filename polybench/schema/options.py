"""Specification of a measurement: Study, Workload, Configuration. The only place with defaults.

A record checks itself when it is created. Only the names of engines and models are checked elsewhere, against
their tables.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from polybench.errors import BadInput
from polybench.networks.model import Model
from polybench.networks.optimizers import LearningRateSchedule, Momentum, Optimizer, Rate, WeightDecay
from polybench.schema.units import plural

Precision = Literal["fp32", "tf32", "bf16"]
InputMode = Literal["preload", "pipeline"]
CheckScope = Literal["new", "all", "only"]
"""Scope of the parity check: "new" leaves out what is cached, "all" repeats it, "only" measures nothing else."""
Pass = Literal["training", "forward"]
"""Part of a training step that is measured: `training` is all of it; `forward` computes only the logits, in evaluation
mode."""
Malloc = Literal["retain", "system"]
"""Policy of the C library for freed memory: `retain` keeps it in the process, `system` is the library's
default, which returns some of it to the kernel, depending on the layout of the heap."""

_MAX_INTEGER = 2**63 - 1  # TOML and JSON hold no larger number for every reader
Integer = Annotated[int, Meta(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]
PositiveInt = Annotated[int, Meta(ge=1, le=_MAX_INTEGER)]
NaturalInt = Annotated[int, Meta(ge=0, le=_MAX_INTEGER)]
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
"""A number of a document. Code that multiplies or divides a few of these needs no check for overflow."""
Amount = Annotated[float, Meta(ge=0, le=1e100)]
Positive = Annotated[float, Meta(ge=1e-100, le=1e100)]
"""A ratio, a rate or a price. Code that divides by it needs no check for zero, even in an edited document."""
Seconds = Annotated[float, Meta(ge=1e-9, le=1e9)]
"""A measured duration: no clock resolves less than a nanosecond, and no worker may take longer than the maximum."""

Count = Annotated[int, Meta(ge=1, le=10**9)]
"""Images, steps, rounds or epochs of a study."""
WorkerCount = Annotated[int, Meta(ge=1, le=10**5)]
"""Threads, processes or replicas of a study."""
Fraction = Annotated[float, Meta(ge=1e-6, lt=1)]
Duration = Annotated[float, Meta(gt=0, le=1e9)]
"""Seconds."""

MAX_THREADS_PER_CORE = 4
"""More threads hardly ever finish a step, so they need `oversubscribe`."""

WARMUP_STEPS_PER_BLOCK = 2
"""Untimed steps at the start of each timing block: after a reset they reallocate gradients and optimizer
state."""

QUICK_BUDGET = 6.0
"""Maximum timed seconds of `--quick`: enough for 5 short rounds of a few engines."""

_DEFAULT_MAX_EPOCHS = 20
"""Maximum epochs of a training with a target, if `epochs` is not given."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_MAX_ENVIRONMENT = 100
ConfigurationName = Annotated[str, Meta(max_length=1000)]
"""Name of a configuration, which every page repeats, or a part of it."""
Label = Annotated[str, Meta(pattern=rf"^{_NAME}$(?!\n)", max_length=60)]
Id = Annotated[str, Meta(pattern=rf"^{_NAME}$(?!\n)", max_length=100)]
"""ID of a study or another document, and the name of its file or folder: no path leads out of a folder by it."""

SweepCommand = Literal["sweep", "overhead"]
LogCommand = Literal[SweepCommand, "layers", "peak", "allocations"]
"""Commands with a log other than that of a study; the log's ID begins with one."""
LogKind = Literal["study", LogCommand]
"""The command that renders a sweep."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


RENAME = {"pass_": "pass"}
"""Field -> name in documents, which is a keyword of Python."""


JULIA_SUFFIX = ".jl"
PROGRAM_SUFFIXES = (".py", JULIA_SUFFIX)
"""Endings of users' programs, which are rows like engines."""
_PROGRAM = re.compile(r"(?P<path>(?:.*/)?(?P<name>[^/]*\.(?:py|jl)))(?:@(?P<environment>[^/@]*))?", re.DOTALL)


def is_program(engine: str) -> bool:
    """Return True for the name of a user's program, which is that of its file."""
    return engine.endswith(PROGRAM_SUFFIXES)


def program_paths(engines: Iterable[str]) -> dict[str, str]:
    """Return the paths of the users' programs among these engines, by the names of their files.

    Raises BadInput for a name that is not plain, or that two files have.
    """
    found: dict[str, str] = {}
    for program in filter(None, map(_PROGRAM.fullmatch, engines)):
        name, path = program["name"], program["path"]
        if not re.fullmatch(_NAME, name):
            raise BadInput(f"{path}: expected a file name of letters, digits and . _ - only: rename it")
        if found.setdefault(name, path) != path:
            raise BadInput(f"{found[name]} and {path} have the same name, {name}: rename one of them")
    return found


def require_allowed(engines: Iterable[str], name: str, *, allowed: bool) -> None:
    """Raise BadInput if a file, or a saved study, of this name has programs that are not allowed."""
    if (programs := program_paths(engines)) and not allowed:
        raise BadInput(
            f"{name} runs {', '.join(programs.values())} with your rights: read what they do, then add --allow-programs"
        )


class EngineName(NamedTuple):
    """An engine with its variants and environment: `torch+compile@nightly`.

    The name of a configuration appends the device, the precision if it is not the study's first, and a number
    if the same configuration is requested again: `torch+compile@nightly/cpu/bf16#2`.
    """

    engine: str
    variants: tuple[str, ...] = ()
    """Sorted; empty for the plain engine."""
    environment: str | None = None
    """A name of `--env`; None is the Python that runs polybench, and the Julia that it finds."""

    @classmethod
    def parse(cls, text: str) -> EngineName:
        """Split the name without checking that the engine and its variants exist.

        That of a user's program, `./mine.py@nightly`, is the name of its file.

        Raises:
            BadInput: the part after the @ is not a valid name of an environment.
        """
        if program := _PROGRAM.fullmatch(text):
            environment = program["environment"]
            return cls(program["name"], (), None if environment is None else check_environment(environment))
        plain, at, environment = text.partition("@")
        engine, *variants = plain.split("+")
        if "+" in environment:
            environment, _, variant = environment.partition("+")
            raise BadInput(f"{text!r}: the environment must come last; write {plain}+{variant}@{environment}")
        return cls(engine, tuple(sorted(variants)), check_environment(environment) if at else None)

    def __str__(self) -> str:
        plain = "+".join((self.engine, *self.variants))
        return plain if self.environment is None else f"{plain}@{self.environment}"


def check_environment(name: str) -> str:
    """Return `name`; raises BadInput if it is not a valid name of an environment."""
    if not re.fullmatch(_NAME, name) or len(name) > _MAX_ENVIRONMENT:
        raise BadInput(
            f"invalid environment name {name[:_MAX_ENVIRONMENT]!r}: expected letters, digits and . _ - only, a letter"
            f" or digit first, and at most {_MAX_ENVIRONMENT} characters"
        )
    return name


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=RENAME):
    """A training step or a forward pass, the same for every engine."""

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
    pass_: Pass = "training"

    @property
    def is_forward_pass(self) -> bool:
        """True if a step computes only the logits of a batch: no dropout, running statistics, no optimizer."""
        return self.pass_ == "forward"


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
        """Unique in a study, built as `EngineName` says: `torch+compile@nightly/cpu/bf16/2x#2`."""
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
    inference: bool = False
    """Measure the forward pass alone."""
    batch_size: Count | None = None
    optimizer: str | None = None
    learning_rate: Rate | None = None
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    lr_schedule: LearningRateSchedule | None = None
    precision: Precision | tuple[Precision, ...] = "fp32"
    """Each precision is a separate configuration, checked at its own tolerance."""
    input: InputMode = "preload"
    loader_workers: Annotated[int, Meta(ge=0, le=10**5)] | None = None
    augment: bool = False
    threads: WorkerCount | None = None
    oversubscribe: bool = False
    """Allow more threads than MAX_THREADS_PER_CORE times the cores."""
    replicas: WorkerCount | tuple[WorkerCount, ...] = 1
    """Each number of replicas is a separate configuration with the study's batch size and threads."""
    malloc: Malloc = "retain"
    pin_cpus: bool = False
    """Pin all workers to the same `threads` cores, with at most one hyper-thread of each core."""
    seed: NaturalInt = 0
    processes: WorkerCount = 5
    rounds_per_process: Count | None = None
    steps_per_round: Count | None = None
    margin: Fraction = 0.05
    """Requested margin of error of each speed-up: the half width of its interval, as a fraction."""
    tolerance: Fraction = 0.01
    """Smallest difference of step times that sentences and verdicts name, as a fraction."""
    epochs: Count | None = None
    accuracy: bool = False
    target_accuracy: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Train until the test accuracy reaches this value, for at most `epochs`."""
    target_loss: Positive | None = None
    """Train until the test loss is at most this value, for at most `epochs`."""
    budget: Duration = 60.0
    wait_idle: Annotated[float, Meta(ge=0, le=1e9)] = 20.0
    """Maximum total wait for an idle machine: before the rounds of a process, and after interference."""
    timeout: Duration = 600.0
    parity: bool = True
    parity_steps: WorkerCount = 3
    cold_starts: Annotated[int, Meta(ge=0, le=1000)] = 1
    """Starts of each program alone, as in a user's first run; with 0, a cold start is that of a worker alone."""
    baseline: str | None = None
    prices: dict[str, Positive] = {}
    """Dollars per hour; see `parse_price_key` for the keys."""
    metrics: bool = True
    """Measure allocations, memory, utilization and energy in addition to times."""
    injected_delays: dict[str, Positive] = {}
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
        self._check_training()
        self._reject_infinite()

    def _check_training(self) -> None:
        """Reject two targets, and what a forward pass does not use."""
        if self.target_accuracy is not None and self.target_loss is not None:
            raise BadInput("--target-accuracy and --target-loss: a training has one target; omit one of them")
        if not self.inference:
            return
        training = ("optimizer", "learning_rate", "momentum", "weight_decay", "lr_schedule")
        for name in (*training, "epochs", "accuracy", "target_accuracy", "target_loss"):
            if getattr(self, name) not in (None, False):
                raise BadInput(f"--inference does not train: omit --{name.replace('_', '-')}")
        if self.replica_counts != (1,):
            raise BadInput("--inference has no gradients that replicas could exchange: omit --replicas")

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
    return study.epochs is not None or does_evaluate(study)


def max_epochs(study: Study) -> int:
    """Return the maximum epochs of a training; it ends earlier if it reaches its target."""
    return study.epochs or (_DEFAULT_MAX_EPOCHS if has_target(study) else 1)


def has_target(study: Study) -> bool:
    """Return True if the study's trainings end as soon as they reach an accuracy or a loss."""
    return study.target_accuracy is not None or study.target_loss is not None


def does_evaluate(study: Study) -> bool:
    """Return True if the study's trainings are evaluated on the test images."""
    return study.accuracy or has_target(study)


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


_KEY = re.compile(r"(.+?)(?:-([1-9]\d*))?")


def parse_price_key(key: str) -> str:
    """Return the device of a price key: `cpu-16` -> `cpu`."""
    return _parse(key)[0]


def merge_prices(prices: Mapping[str, float], threads: int) -> dict[str, float]:
    """Return dollars per hour by device, for a machine with this number of threads.

    A price for exactly this number takes precedence over one without threads; devices with neither are left
    out.
    """
    merged: dict[str, float] = {}
    for key, price in prices.items():
        device, key_threads = _parse(key)
        if key_threads == threads:
            merged[device] = price
        elif key_threads is None:
            merged.setdefault(device, price)
    return merged


def missing_prices(prices: Mapping[str, float], devices: Iterable[str], threads: int) -> Iterator[str]:
    """Yield a sentence for each device that has prices, but none for this number of threads."""
    available = merge_prices(prices, threads)
    for device in dict.fromkeys(devices):
        priced = [number for key_device, number in map(_parse, prices) if key_device == device]
        if priced and device not in available:
            yield (
                f"no price of {device} with {plural(threads, 'thread')}: prices have"
                f" {', '.join(map(str, priced))} threads; add {device}-{threads}, or {device} for any number"
            )


def _parse(key: str) -> tuple[str, int | None]:
    match = _KEY.fullmatch(key)
    if match is None:  # empty, or with line breaks
        return key, None
    return match[1], int(match[2]) if match[2] else None


_PUNCTUATION = {"accelerator": "._-"} | dict.fromkeys(("resources", "partition", "constraint"), "._-,:@&|*+%=!/()[]")
"""Field of a machine group -> characters that it may contain apart from letters and digits.

Schedulers read the values, some of them as options or lines of a script."""


class MachineGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A class of machines, one of which measures all configurations of a study.

    A group gets a whole machine: all of its cores and GPUs. Fields that are None request nothing.
    """

    label: Label = "local"
    """Name of the machine in the table; unique."""
    accelerator: str | None = None
    """GPU type: Ray's accelerator type ("V100"), or the type of a SLURM gres."""
    resources: str | None = None
    """A resource with which Ray's nodes of this class were started (`ray start --resources`)."""
    partition: str | None = None
    """SLURM partition; of several, separated by commas, SLURM chooses the first that is free."""
    constraint: str | None = None
    """SLURM constraint on node features."""
    minutes: Count | None = None
    """Time limit of a SLURM job; polybench resumes in a new job after it. None is two hours, or the
    partition's limit if that is shorter."""
    devices: tuple[str, ...] | None = None
    """The study's devices to measure on this machine; None is all that the machine has, or that the study
    names."""
    price: Positive | None = None
    """Dollars per hour for the machine, or per GPU if configurations with replicas use several GPUs. None
    uses the study's prices."""

    def __post_init__(self) -> None:
        for name, punctuation in _PUNCTUATION.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(rf"[A-Za-z0-9{re.escape(punctuation)}]+", value):
                raise BadInput(
                    f"{name} {value!r}: expected letters, digits and {' '.join(punctuation)} only: remove the others"
                )

    def study(self, study: Study) -> Study:
        """Return the study with this machine's devices and price.

        A baseline on another machine is dropped, because its configuration may not exist here.
        """
        devices = self.devices or study.devices
        prices = study.prices
        if self.price is not None:
            prices = dict.fromkeys(devices or ("cpu", "cuda"), self.price)
        elif self.devices is not None:
            prices = {name: price for name, price in prices.items() if parse_price_key(name) in self.devices}
        machine, configuration = split_baseline(study.baseline)
        baseline = configuration if machine in (None, self.label) else None
        return msgspec.structs.replace(study, devices=devices, prices=prices, baseline=baseline)


SINGLE_MACHINE = (MachineGroup(),)
"""The default for a study file without machines."""


def split_baseline(baseline: str | None) -> tuple[str | None, str | None]:
    """Split `MACHINE:CONFIGURATION`; the machine is None if absent. Configurations may contain colons."""
    machine, colon, configuration = (baseline or "").partition(":")
    if not colon or "/" in machine:
        return None, baseline
    return machine, configuration


def check_machine_groups(study: Study, groups: Sequence[MachineGroup]) -> None:
    """Reject groups on which a study cannot be measured.

    Raises:
        BadInput: labels are not unique, the baseline names another machine, a device is unknown, or
            configurations have environments, which exist on one machine only.
    """
    if study.env:
        names = ", ".join(study.env)
        raise BadInput(f"env {names}: environments exist on this machine only; drop them, or drop --on")
    labels = [group.label for group in groups]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"duplicate label {label!r} in [[machines]]: give each machine its own label")
    machine, _ = split_baseline(study.baseline)
    if machine is not None and machine not in labels:
        raise BadInput(f"baseline {study.baseline}: unknown machine {machine!r}; machines are: {', '.join(labels)}")
    for group in groups:
        group.study(study)
