"""Measures each layer of a network separately, in the same rounds and processes as whole steps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from polybench.engines.job import Job
from polybench.errors import BadInput
from polybench.experiments.outcome import Outcome
from polybench.log import Header, Log
from polybench.networks.timed_layers import split_layers
from polybench.planning.plan import Plan, resolve
from polybench.planning.schedule import RoundBudget
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.render.layers import slowest
from polybench.results.layers import derive_layers
from polybench.run import run
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.prepare import header_of_command, new_header, new_log
from polybench.runner.process_runs import Operation, WholeSteps, record_operations
from polybench.runner.progress import Progress
from polybench.runner.resume import unfinished_log
from polybench.runner.scratch import scratch_folder
from polybench.runner.session import Session
from polybench.runner.workers import start_reference
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Study
from polybench.scripts.layer import NO_PROGRAMS, write_programs
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
    export_folder: Path | None = None,
) -> Outcome[LayersDocument]:
    """Check every configuration of the study, then measure whole steps and every layer separately.

    The study's `metrics` are ignored. `expand_blocks` gives each layer of a residual block a row of its own. Of the
    network of a single layer, the document has only this layer. `export_folder` gets programs that reproduce the
    operation with the largest slowdown. Other arguments and errors are those of `run_study`.
    """
    if study.input != "preload":
        raise BadInput("layers cannot be timed with an input pipeline: use --input preload")
    if export_folder is not None and "bf16" in study.precisions:
        raise BadInput("--export writes programs that compute in float32: remove it, or use --precision fp32")
    if export_folder is not None:
        _ensure_programs_writable(export_folder)
    study = msgspec.structs.replace(
        study, metrics=False, epochs=None, accuracy=False, target_accuracy=None, target_loss=None
    )
    header = header_of_command(header or new_header(), "layers", expand_blocks=expand_blocks)
    with new_log(study, header, store) as log:
        return _measure(study, log, progress, store, strict=strict, export_folder=export_folder)


def resume_layers(id: str, progress: Progress, *, store: Store, anonymous: bool = False) -> Outcome[LayersDocument]:
    """Measure the process runs that interrupted or killed layers lack; errors are those of `resume_study`."""
    with unfinished_log(id, store, anonymous=anonymous) as (log, study):
        return _measure(study, log, progress, store)


def _measure(
    study: Study,
    log: Log,
    progress: Progress,
    store: Store | None,
    *,
    strict: bool = False,
    export_folder: Path | None = None,
) -> Outcome[LayersDocument]:
    with scratch_folder() as folder:
        run(study, log, progress, store=store, strict=strict, operations=[WholeSteps(), _Layers(folder)])
        if export_folder is not None:
            expanded = derive_layers(log.events, expand_blocks=True)
            _write_programs(resolve(study), progress, expanded, folder, export_folder)
    notes = [f"wrote programs of the slowest operation to {export_folder}"] if _has_files(export_folder) else []
    return Outcome(derive_layers(log.events), [log.header.id], log.text, notes)


def _has_files(folder: Path | None) -> bool:
    return folder is not None and any(folder.iterdir())


class _Layers(Operation):
    """Every operation of every layer, immediately after the whole steps of the same round."""

    relative_cost = 1.5  # of the operations, and of timing them

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, session: Session) -> None:
        """Write the input of each layer, and the gradient of its output."""
        self._session, self._timeout = session, session.plan.study.timeout
        if session.next_process_run is None:
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
        if not run.planned.compiled_as_whole:
            self._session.progress.on_stage(f"building the layers of {name}")
            request = calls.build_layer_ops(str(self._session.files.weights), str(self._folder))
            worker.request(request, self._timeout)

    def measure(self, run: ConfigurationRun, worker: WorkerProcess, budget: RoundBudget, steps: int) -> None:  # noqa: ARG002
        """Time each operation as often as a block has steps."""
        if not run.planned.compiled_as_whole:
            record_operations(run, worker, steps, self._timeout)


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
        problem = f"no programs for {layer}, {operation}, the largest slowdown: {NO_PROGRAMS} have none"
        progress.on_warning(f"{problem}; for the whole training, run {command}")
