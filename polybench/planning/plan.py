"""Study -> Plan: names looked up, this machine's defaults filled in. Nothing is started or read yet."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from polybench.core.errors import BadInput
from polybench.core.job import Job
from polybench.core.model import Model
from polybench.core.names import pick
from polybench.core.optimizers import OPTIMIZERS, Optimizer
from polybench.core.prices import device_of
from polybench.core.spec import Cell, Study, Workload, cells, check_tf32
from polybench.core.units import plural
from polybench.engines import ALLOCATORS, EngineRow
from polybench.engines.installed import find_engine
from polybench.machine import cores, host
from polybench.models import find_model
from polybench.planning import schedule
from polybench.planning.environments import absolute, place_of

_MEMORY_SHARE = 0.8
"""Of the available memory, for the workers that live at the same time."""


class Plan(NamedTuple):
    """What will be measured, in full.

    `workload` is that of cells without a precision of their own; its dataset is what the user asked for.
    `cpus` are those to which every worker is bound; none where the system may move them.
    """

    study: Study
    model: Model
    workload: Workload
    cells: tuple[Cell, ...]
    cpus: tuple[int, ...] = ()

    def workload_of(self, cell: Cell) -> Workload:
        """What a training step of this cell is."""
        precision = cell.precision or self.workload.precision
        return msgspec.structs.replace(self.workload, precision=precision, replicas=cell.replicas)

    def job(self, cell: Cell) -> Job:
        """What a worker of this cell builds."""
        workload = self.workload_of(cell)
        return Job(self.model, workload, cell.device, "float32", cell.variants, seed=self.study.seed)


def row(cell: Cell) -> EngineRow:
    """The engine's row of a cell that a plan holds."""
    return find_engine(cell.engine)


def counts_natively(plan: Plan, cell: Cell) -> bool:
    """Whether what its steps ask of the C library is counted: once a cell, if it computes anything."""
    return plan.study.metrics and cell.repeat == 1 and row(cell).does_arithmetic


def counts_natively_apart(study: Study) -> bool:
    """Whether that needs processes of its own: the last replicate is the one that times pipelines at its end.

    Nothing is timed in a process after it.
    """
    return study.processes == 1 and study.input == "pipeline"


def estimated_bytes(plan: Plan, cell: Cell, epoch_bytes: int) -> int:
    """Memory that one worker will take, generously: framework, batches, weights and activations.

    Weights, gradients and optimizer state make 4 copies, activations and their gradients 3.
    """
    engine = row(cell)
    values = sum(math.prod(shape) for _, shape in plan.model.activations())
    processes = cell.replicas if engine.replicas == "processes" else 1
    floats = 4 * plan.model.total_parameters() * cell.replicas + 3 * plan.workload.batch_size * values
    # Tokens of 4 bytes become indices of 8, in every engine.
    copied = 2 * epoch_bytes if plan.model.vocabulary is not None else epoch_bytes * engine.copies_data
    return processes * engine.memory_bytes + 4 * floats + copied


def memory_groups(plan: Plan, cells: Iterable[Cell], epoch_bytes: int) -> list[list[Cell]]:
    """The cells whose workers can live at the same time, in order."""
    sizes = {cell: estimated_bytes(plan, cell, epoch_bytes) for cell in cells}
    return schedule.groups(sizes, int(host.available_memory() * _MEMORY_SHARE))


def resolve(study: Study) -> Plan:
    """Judge a study without its engines and devices.

    Raises:
        BadInput: an unknown name (with the nearest valid one) or an impossible combination.
    """
    study = msgspec.structs.replace(study, env=absolute(study.env))
    model = find_model(study.model)
    if study.input == "pipeline" and len(model.input_shape) != 3:
        raise BadInput(
            f"--input pipeline: pipelines prepare images, and {model.name} takes sequences; leave it out"
        )
    devices = study.devices or _devices_of_machine()
    check_tf32(study.precisions, devices)
    grid = cells(study.engines, devices, study.precisions, study.replica_counts)
    for cell in grid:
        known = row(cell).variants | ALLOCATORS
        for variant in cell.variants:
            pick(variant, known, f"variant of {cell.engine}")
        if len(set(cell.variants)) < len(cell.variants):
            raise BadInput(f"{cell.name} names a variant twice")
        place_of(cell, row(cell), study.env)
    by_name = {cell.name: cell for cell in grid}
    for name in (*study.handicaps, *([study.baseline] if study.baseline else [])):
        pick(name, by_name, "cell")
    for name in study.prices if study.devices else ():  # else prices may be of more than this machine has
        pick(device_of(name), dict.fromkeys(devices), "device with a price")
    threads = study.threads or host.usable_threads()
    workload = Workload(
        model=model.name,
        dataset=study.data,
        batch_size=study.batch_size or model.batch_size,
        optimizer=_optimizer(study, model),
        precision=study.precisions[0],
        threads=threads,
        input=study.input,
        # A core may prepare data while another trains.
        workers=None if study.input == "preload" else threads if study.workers is None else study.workers,
        augment=study.augment,
    )
    _check_replicas(study.replica_counts, workload, devices)
    return Plan(study, model, workload, grid, _pinned(threads) if study.pin else ())


def check_elsewhere(study: Study) -> None:
    """Judge a study that another machine measures: by what it says, and not by this one's devices and cores.

    Raises:
        BadInput: no machine could run it.
    """
    if study.devices is None:  # prices may be of more than these
        both = () if study.precisions == ("tf32",) else ("cpu",)
        study = msgspec.structs.replace(study, devices=(*both, "cuda"), prices={})
    resolve(_as_if_elsewhere(study))


def resolve_elsewhere(study: Study) -> Plan:
    """What another machine would measure, if it had this one's devices and enough cores.

    Raises:
        BadInput: no machine could run it.
    """
    check_elsewhere(study)
    if study.devices is None:
        devices = ("cuda",) if study.precisions == ("tf32",) else _devices_of_machine()
        study = msgspec.structs.replace(study, devices=devices, prices={}, baseline=None)
    return resolve(_as_if_elsewhere(study))


def _as_if_elsewhere(study: Study) -> Study:
    """With threads that replicas can share, whatever there are here, and without CPUs of here."""
    shared = math.lcm(*study.replica_counts)
    threads = study.threads or shared * max(1, host.usable_threads() // shared)
    return msgspec.structs.replace(study, pin=False, threads=threads)


def _check_replicas(counts: Iterable[int], workload: Workload, devices: Iterable[str]) -> None:
    """Each replica has its part of a batch and, on the CPU, of the threads."""
    for count in counts:
        if workload.batch_size % count:
            raise BadInput(
                f"--replicas {count} does not divide the batch of {workload.batch_size}, of which each has"
                f" its part; give --batch-size {count * max(1, workload.batch_size // count)}"
            )
        if workload.threads % count and "cpu" in devices:
            raise BadInput(
                f"--replicas {count} share {plural(workload.threads, 'thread')} evenly, and each needs one;"
                f" give --threads {count * max(1, workload.threads // count)}, or other replicas"
            )


def _pinned(threads: int) -> tuple[int, ...]:
    """The CPUs for `--pin`, each on a physical core of its own."""
    physical = cores.physical_cores()
    if not physical:
        raise BadInput(
            f"--pin: this system does not tell its physical cores (Linux: {cores.CPUS}); leave --pin out"
        )
    if threads > len(physical):
        raise BadInput(
            f"--pin: {plural(threads, 'thread')} need as many physical cores, and this process may run on"
            f" {len(physical)}; give --threads {len(physical)}, or leave --pin out"
        )
    return cores.choose(physical, threads)


def _devices_of_machine() -> tuple[str, ...]:
    return ("cpu", "cuda") if host.gpus() else ("cpu",)


def _optimizer(study: Study, model: Model) -> Optimizer:
    """The model's own declaration, with what the study overrides.

    Another optimizer has none of the model's settings, and another rate none of the model's changes of it.
    """
    optimizer = model.optimizer
    if study.optimizer is not None and study.optimizer != optimizer.name:
        optimizer = pick(study.optimizer, OPTIMIZERS, "optimizer")
    if study.learning_rate is not None:
        optimizer = msgspec.structs.replace(optimizer, schedule=())
    names = ("learning_rate", "momentum", "weight_decay", "schedule")
    overrides = {name: value for name in names if (value := getattr(study, name)) is not None}
    return msgspec.structs.replace(optimizer, **overrides)
