"""Resolves a study into a plan: looks up names and fills in this machine's defaults.

Starts and reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.engines import ALLOCATOR_VARIANTS, ENGINES, EngineSpec
from polybench.engines.job import Job
from polybench.engines.source import Source, read_source
from polybench.errors import BadInput, lookup_or_suggest
from polybench.machine import cores, host
from polybench.networks import find_model
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS, Optimizer
from polybench.planning import schedule
from polybench.planning.environments import absolute_paths, resolve_environment
from polybench.schema.options import (
    MAX_THREADS_PER_CORE,
    Configuration,
    Study,
    Workload,
    check_tf32,
    configuration_grid,
    parse_price_key,
    program_paths,
)
from polybench.schema.units import plural

_MEMORY_SHARE = 0.8
"""Share of the available memory for all workers that run at the same time."""


class Plan(NamedTuple):
    """A resolved study.

    `workload` applies to configurations without their own precision; its dataset is the requested one.
    `cpus` are the CPUs that every worker is pinned to; empty without pinning. `programs` are the users' programs by the
    name that they have as engines.
    """

    study: Study
    model: Model
    workload: Workload
    configurations: tuple[Configuration, ...]
    cpus: tuple[int, ...] = ()
    programs: Mapping[str, Source] = {}

    def workload_of(self, configuration: Configuration) -> Workload:
        """Return the workload of a configuration."""
        precision = configuration.precision or self.workload.precision
        return msgspec.structs.replace(self.workload, precision=precision, replicas=configuration.replicas)

    def job(self, configuration: Configuration) -> Job:
        """Return the job of a configuration's worker."""
        workload = self.workload_of(configuration)
        return Job(self.model, workload, configuration.device, "float32", configuration.variants, seed=self.study.seed)


def engine_spec(configuration: Configuration) -> EngineSpec:
    """Return the engine of a planned configuration."""
    return ENGINES.find(configuration.engine)


def has_native_count(plan: Plan, configuration: Configuration) -> bool:
    """True if native allocations of a configuration are counted: once per configuration that computes."""
    return plan.study.metrics and configuration.repeat == 1 and engine_spec(configuration).computes


def needs_native_count_process(study: Study, configuration: Configuration) -> bool:
    """True if native counting needs a separate process.

    A variable has to turn off the engine's memory pool, or a single process run times its pipeline at the end:
    nothing may be timed in a process after the count.
    """
    times_pipeline_last = study.processes == 1 and study.input == "pipeline"
    return times_pipeline_last or bool(engine_spec(configuration).counting_environment)


def estimated_bytes(plan: Plan, configuration: Configuration, epoch_bytes: int) -> int:
    """Upper estimate of one worker's memory: framework, batches, weights and activations.

    Weights, gradients and optimizer state make 4 copies, activations and their gradients 3.
    """
    engine = engine_spec(configuration)
    values = sum(math.prod(shape) for _, shape in plan.model.activations())
    processes = configuration.replicas if engine.replicas == "processes" else 1
    floats = 4 * plan.model.total_parameters() * configuration.replicas + 3 * plan.workload.batch_size * values
    # Tokens of 4 bytes become indices of 8, in every engine.
    copied = 2 * epoch_bytes if plan.model.vocabulary_size is not None else epoch_bytes * engine.copies_data
    return processes * engine.memory_bytes + 4 * floats + copied


def memory_groups(plan: Plan, configurations: Iterable[Configuration], epoch_bytes: int) -> list[list[Configuration]]:
    """Return groups of configurations whose workers fit into memory together, in order."""
    sizes = {configuration: estimated_bytes(plan, configuration, epoch_bytes) for configuration in configurations}
    return schedule.groups(sizes, int(host.available_memory() * _MEMORY_SHARE))


def resolve(study: Study) -> Plan:
    """Resolve a study without starting engines or devices.

    Raises BadInput for an unknown name (with the nearest valid one) or an impossible combination.
    """
    study = msgspec.structs.replace(study, env=absolute_paths(study.env))
    model = find_model(study.model)
    if study.input == "pipeline" and len(model.input_shape) != 3:
        raise BadInput(f"--input pipeline: pipelines read images, but {model.name} takes sequences: omit the option")
    devices = study.devices or _devices_of_machine()
    check_tf32(study.precisions, devices)
    grid = configuration_grid(study.engines, devices, study.precisions, study.replica_counts)
    for configuration in grid:
        known = engine_spec(configuration).variants | ALLOCATOR_VARIANTS
        for variant in configuration.variants:
            lookup_or_suggest(variant, known, f"variant of {configuration.engine}")
            if study.inference and known[variant].training_only:
                raise BadInput(f"--inference: {configuration.engine}+{variant} changes training only: omit +{variant}")
        if len(set(configuration.variants)) < len(configuration.variants):
            raise BadInput(f"{configuration.name} repeats a variant")
        resolve_environment(configuration, engine_spec(configuration), study.env)
    by_name = {configuration.name: configuration for configuration in grid}
    for name in (*study.injected_delays, *([study.baseline] if study.baseline else [])):
        lookup_or_suggest(name, by_name, "configuration")
    for name in study.prices if study.devices else ():  # without --devices, prices may name other machines' devices
        lookup_or_suggest(parse_price_key(name), dict.fromkeys(devices), "device with a price")
    usable = host.usable_threads()
    threads = study.threads or usable
    if threads > (most := MAX_THREADS_PER_CORE * usable) and not study.oversubscribe:
        raise BadInput(
            f"--threads {threads} on {plural(usable, 'usable core')}: expected at most {most}, or --oversubscribe"
        )
    workload = Workload(
        model=model.name,
        dataset=study.data,
        batch_size=study.batch_size or model.batch_size,
        # Without state or schedule: a forward pass has no optimizer, and no engine allocates anything for this one.
        optimizer=OPTIMIZERS["sgd"] if study.inference else _optimizer(study, model),
        precision=study.precisions[0],
        threads=threads,
        input=study.input,
        # One core can prepare data while another trains.
        loader_workers=None
        if study.input == "preload"
        else threads
        if study.loader_workers is None
        else study.loader_workers,
        augment=study.augment,
        pass_="forward" if study.inference else "training",
    )
    _check_replicas(study.replica_counts, workload, devices)
    cpus = _pinned(threads) if study.pin_cpus else ()
    return Plan(study, model, workload, grid, cpus, _read_programs(study, model))


def _read_programs(study: Study, model: Model) -> dict[str, Source]:
    """Read the users' programs; raises BadInput for one that cannot be a row of this study."""
    programs = {name: read_source(Path(path).absolute()) for name, path in program_paths(study.engines).items()}
    for name, source in programs.items():
        if study.input == "pipeline":
            _check_pipeline(study, name, source)
        if study.parity and not source.takes_weights:
            raise BadInput(
                f"{name} is not checked: its setup() takes no weights, so the reference does not know its losses:"
                " write setup(weights), or compare times only, with --no-parity"
            )
        if study.parity and model.is_random:
            raise BadInput(
                f"{name} is not checked: {model.name} has dropout, and a program draws masks of its own: compare times"
                " only, with --no-parity"
            )
    return programs


def _check_pipeline(study: Study, name: str, source: Source) -> None:
    if "batches" not in source.functions:
        raise BadInput(
            f"--input pipeline: {name} has no pipeline: omit the option or the program, or write"
            " batches(images, labels, order)"
        )
    if study.augment and study.parity:
        raise BadInput(
            f"--augment: {name} is not checked, because its pipeline draws augmentations of its own: compare times"
            " only, with --no-parity"
        )


def check_remote(study: Study) -> None:
    """Check a study for another machine, independent of this machine's devices and cores."""
    if programs := program_paths(study.engines):
        raise BadInput(f"{', '.join(programs)}: programs of yours run on this machine only: omit them, or --on")
    if study.devices is None:  # prices may name more devices
        both = () if study.precisions == ("tf32",) else ("cpu",)
        study = msgspec.structs.replace(study, devices=(*both, "cuda"), prices={})
    resolve(_as_remote(study))


def resolve_remote(study: Study) -> Plan:
    """Resolve a study for another machine, assuming this machine's devices and enough cores."""
    check_remote(study)
    if study.devices is None:
        devices = ("cuda",) if study.precisions == ("tf32",) else _devices_of_machine()
        study = msgspec.structs.replace(study, devices=devices, prices={}, baseline=None)
    return resolve(_as_remote(study))


def _as_remote(study: Study) -> Study:
    """Replace this machine's CPUs by threads that replicas can share evenly; another machine may have more cores."""
    shared = math.lcm(*study.replica_counts)
    threads = study.threads or shared * max(1, host.usable_threads() // shared)
    return msgspec.structs.replace(study, pin_cpus=False, threads=threads, oversubscribe=True)


def _check_replicas(counts: Iterable[int], workload: Workload, devices: Iterable[str]) -> None:
    """Check that replicas divide the batch and, on the CPU, the threads."""
    for count in counts:
        if workload.batch_size % count:
            raise BadInput(
                f"--replicas {count} does not divide the batch of {workload.batch_size} evenly:"
                f" use --batch-size {count * max(1, workload.batch_size // count)}"
            )
        if workload.threads % count and "cpu" in devices:
            raise BadInput(
                f"--replicas {count} does not divide {plural(workload.threads, 'thread')} evenly:"
                f" use --threads {count * max(1, workload.threads // count)}, or other replicas"
            )


def _pinned(threads: int) -> tuple[int, ...]:
    """Return the CPUs for `--pin-cpus`, one per physical core."""
    physical = cores.physical_cores()
    if not physical:
        raise BadInput(f"--pin-cpus: physical cores are unknown (on Linux: {cores.CPU_FOLDER}): omit --pin-cpus")
    if threads > len(physical):
        raise BadInput(
            f"--pin-cpus: {plural(threads, 'thread')} need as many physical cores, but this process may use"
            f" {len(physical)}: use --threads {len(physical)}, or omit --pin-cpus"
        )
    return cores.select_cores(physical, threads)


def _devices_of_machine() -> tuple[str, ...]:
    return ("cpu", "cuda") if host.gpu_names() else ("cpu",)


def _optimizer(study: Study, model: Model) -> Optimizer:
    """Return the model's optimizer with the study's overrides.

    A different optimizer drops the model's settings; a different rate or schedule drops the model's schedule.
    """
    optimizer = model.optimizer
    if study.optimizer is not None and study.optimizer != optimizer.name:
        optimizer = lookup_or_suggest(study.optimizer, OPTIMIZERS, "optimizer")
    if study.learning_rate is not None or study.lr_schedule is not None:
        constant = {"lr_schedule": (), "warmup_steps": 0, "cosine_steps": 0, "min_learning_rate": 0.0}
        optimizer = msgspec.structs.replace(optimizer, **constant)
    names = ("learning_rate", "momentum", "weight_decay", "lr_schedule")
    overrides = {name: value for name in names if (value := getattr(study, name)) is not None}
    return msgspec.structs.replace(optimizer, **overrides)
