"""Measures each layer of a network separately, in the same rounds and processes as whole steps."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

import msgspec

from polybench.engines.job import Job
from polybench.errors import BadInput
from polybench.log import Header
from polybench.networks.timed_layers import split_layers
from polybench.planning.plan import Plan, engine_spec, resolve
from polybench.planning.schedule import RoundBudget
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.render.layers import slowest
from polybench.results.layers import OperationTimes, build_layers_document
from polybench.run import run_study
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.prepare import new_header
from polybench.runner.process_runs import Operation, WholeSteps
from polybench.runner.progress import Progress
from polybench.runner.scratch import scratch_folder
from polybench.runner.session import Session
from polybench.runner.workers import start_reference
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Configuration, Study
from polybench.scripts import NETWORKS, TOKEN_MODELS
from polybench.scripts.layer import KINDS, write_programs
from polybench.storage.store import Store

_WEIGHTS = "weights.npz"


def run_layers(
    study: Study,
    progress: Progress,
    *,
    store: Store | None = None,
    header: Header | None = None,
    strict: bool = False,
    expand_blocks: bool = False,
    only_layer: str | None = None,
    export_folder: Path | None = None,
) -> LayersDocument:
    """Check every configuration of the study, then measure whole steps and every layer separately.

    The study's `metrics` are ignored. `expand_blocks` gives each layer of a residual block a row of its own. With
    `only_layer`, the document omits other layers and whole steps. `export_folder` gets programs that reproduce the
    operation with the largest slowdown. Other arguments and errors are those of `run_study`.
    """
    if study.input != "preload":
        raise BadInput("layers cannot be timed with an input pipeline: use --input preload")
    if export_folder is not None and "bf16" in study.precisions:
        raise BadInput("--export writes programs that compute in float32: remove it, or use --precision fp32")
    if store is not None:
        store.ensure_writable()
    if export_folder is not None:
        _ensure_programs_writable(export_folder)
    study = msgspec.structs.replace(
        study, metrics=False, epochs=None, accuracy=False, target_accuracy=None, target_loss=None
    )
    header = header or new_header()
    plan = resolve(study)
    with scratch_folder() as folder:
        layers = _Layers(folder)
        finished = run_study(
            study, progress, store=None, header=header, strict=strict, operations=[WholeSteps(), layers]
        )
        make_document = partial(
            build_layers_document,
            finished,
            plan.model,
            layers.times,
            [configuration.name for configuration in plan.configurations if _is_compiled_as_whole(configuration)],
            only_layer=only_layer,
        )
        if export_folder is not None and layers.times:
            _write_programs(plan, progress, make_document(expand_blocks=True), folder, export_folder)
    document = make_document(expand_blocks=expand_blocks)
    if store is not None and (save_error := store.try_to_save(document)) is not None:
        progress.on_warning(save_error)
    return document


class _Layers(Operation):
    """Every operation of every layer, immediately after the whole steps of the same round."""

    relative_cost = 1.5  # of the operations, and of timing them

    def __init__(self, folder: Path) -> None:
        self.times: dict[str, OperationTimes] = {}
        self._folder = folder

    def start(self, session: Session) -> None:
        """Write the input of each layer, and the gradient of its output."""
        self._session, self._timeout = session, session.plan.study.timeout
        if not session.active_runs:
            return
        session.progress.on_stage("computing each layer's input in the float64 reference")
        files, plan = session.files, session.plan
        shutil.copy(files.weights, self._folder / _WEIGHTS)
        job = Job(plan.model, plan.workload, "cpu", "float64", seed=plan.study.seed)
        with start_reference(session.logs, self._timeout, plan.cpus) as worker:
            worker.request(calls.prepare(job, str(files.weights), files.parity), self._timeout)
            worker.request(calls.write_layer_tensors(str(self._folder)), self._timeout)

    def build(self, run: ConfigurationRun, worker: WorkerProcess) -> None:
        """Build each layer alone."""
        name = run.configuration.name
        if not _is_compiled_as_whole(run.configuration):
            self._session.progress.on_stage(f"building the layers of {name}")
            request = calls.build_layer_ops(str(self._session.files.weights), str(self._folder))
            worker.request(request, self._timeout)
            self.times.setdefault(name, []).append([])

    def measure(self, run: ConfigurationRun, worker: WorkerProcess, budget: RoundBudget, steps: int) -> None:  # noqa: ARG002
        """Time each operation as often as a block has steps."""
        if times := self.times.get(run.configuration.name):
            times[-1].append(worker.request(calls.time_layer_ops(steps), self._timeout))


def _ensure_programs_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(
            f"cannot write programs to {folder}: {error.strerror}: choose another folder for --export"
        ) from error


def _write_programs(plan: Plan, progress: Progress, document: LayersDocument, tensors: Path, folder: Path) -> None:
    slowdown = slowest(document)
    if slowdown is None:
        return
    layer, operation = slowdown.layer, slowdown.operation
    index, timed_layer = next(indexed for indexed in enumerate(split_layers(plan.model)) if indexed[1].name == layer)
    try:
        files = write_programs(
            folder, timed_layer, operation, tensors / f"{index}.npz", tensors / _WEIGHTS, plan.workload
        )
    except OSError as error:  # must not lose the measurements
        progress.on_warning(f"no programs: cannot write to {folder}: {error.strerror}")
        return
    if not files:
        command = f"polybench export --train --model {plan.model.name} -o FOLDER"
        instead = f"; for the whole training, run {command}" if plan.model.name in (*NETWORKS, *TOKEN_MODELS) else ""
        progress.on_warning(
            f"no programs for {layer}, {operation}, the largest slowdown: only {KINDS} are supported{instead}"
        )


def _is_compiled_as_whole(configuration: Configuration) -> bool:
    return not engine_spec(configuration).supports_layer_timing(configuration.variants)
