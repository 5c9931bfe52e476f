"""Measures each layer of a network separately, in the same rounds and processes as whole steps."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from polybench.engines.job import Job
from polybench.errors import BadInput
from polybench.networks.timed_layers import split_layers
from polybench.planning.plan import engine_spec, resolve
from polybench.planning.schedule import TimingBlocks
from polybench.protocol import calls
from polybench.render.layers import slowest
from polybench.results.document import DocumentHeader
from polybench.results.layers import OperationTimes, build_layers_document
from polybench.runner.parity import check_then_measure
from polybench.runner.prepare import new_header, prepare
from polybench.runner.process_runs import ProcessRun, Workers, run_all
from polybench.runner.progress import Progress
from polybench.runner.state import StudyState
from polybench.runner.workers import start_reference
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Configuration, Study
from polybench.scripts import NETWORKS, TOKEN_MODELS
from polybench.scripts.layer import KINDS, write_programs
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store


def run_layers(
    study: Study,
    progress: Progress,
    *,
    store: Store | None = None,
    header: DocumentHeader | None = None,
    strict: bool = False,
    expand_blocks: bool = False,
    only_layer: str | None = None,
    scripts_folder: Path | None = None,
) -> LayersDocument:
    """Check every configuration of the study, then measure whole steps and every layer separately.

    Args:
        study: what to measure; its `metrics` are ignored.
        progress: receives progress reports between measurements.
        store: where to save the document; None does not save it.
        header: from `new_header`, as in `run_study`.
        strict: refuse to measure if an engine or device is unavailable.
        expand_blocks: give each layer of a residual block a row of its own.
        only_layer: name of a layer; the document then omits other layers and whole steps.
        scripts_folder: folder for scripts that reproduce the operation with the largest slowdown.

    Raises:
        BadInput: invalid arguments, before anything is started.
        RequiredEngineMissing: with `strict`, before anything is measured.
    """
    if study.input != "preload" or "bf16" in study.precisions:
        raise BadInput("layers cannot be timed with this --input or --precision: use --input preload and fp32 or tf32")
    if store is not None:
        store.ensure_writable()
    if scripts_folder is not None:
        _ensure_scripts_writable(scripts_folder)
    study = msgspec.structs.replace(study, metrics=False)
    header = header or new_header()
    times: dict[str, OperationTimes] = {}
    with prepare(resolve(study), progress, header=header) as prepared:
        state = prepared.state
        folder = prepared.scratch / "layers"

        def measure() -> None:
            if not folder.exists():
                progress.on_stage("computing each layer's input in the float64 reference")
                _write_layer_tensors(state, folder)
            run_all(state, None, partial(_LayerRun, folder, times))

        try:
            check_then_measure(state, prepared.scratch, measure, strict=strict)
        except KeyboardInterrupt:
            state.interrupt()
        compiled_as_whole = [
            configuration.name for configuration in state.plan.configurations if _is_compiled_as_whole(configuration)
        ]
        make_document = partial(
            build_layers_document,
            state.finish(),
            state.plan.model,
            times,
            compiled_as_whole,
            only_layer=only_layer,
        )
        if scripts_folder is not None and times:
            _write_scripts(state, make_document(expand_blocks=True), folder, scripts_folder)
        document = make_document(expand_blocks=expand_blocks)
    if header.anonymous:
        document = anonymize(document, store.folder if store else None)
    if store is not None and (save_error := store.try_to_save(document)) is not None:
        progress.on_warning(save_error)
    return document


def _write_layer_tensors(state: StudyState, folder: Path) -> None:
    """Write the tensors of all layers, for as many images as the parity check uses."""
    folder.mkdir()
    timeout, files = state.plan.study.timeout, state.files
    job = Job(state.plan.model, state.plan.workload, "cpu", "float64", seed=state.plan.study.seed)
    with start_reference(state.logs, timeout, state.plan.cpus) as worker:
        worker.request(calls.prepare(job, str(files.weights), files.parity), timeout)
        worker.request(calls.write_layer_tensors(str(folder)), timeout)


def _ensure_scripts_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(
            f"cannot write scripts to {folder}: {error.strerror}: choose another folder for --scripts"
        ) from error


def _write_scripts(state: StudyState, document: LayersDocument, tensors: Path, folder: Path) -> None:
    slowdown = slowest(document)
    if slowdown is None:
        return
    layer, operation = slowdown.layer, slowdown.operation
    plan = state.plan
    index, timed_layer = next(indexed for indexed in enumerate(split_layers(plan.model)) if indexed[1].name == layer)
    try:
        files = write_programs(
            folder, timed_layer, operation, tensors / f"{index}.npz", state.files.weights, plan.workload
        )
    except OSError as error:  # must not lose the measurements
        state.progress.on_warning(f"no scripts: cannot write to {folder}: {error.strerror}")
        return
    if not files:
        command = f"polybench scripts --model {plan.model.name} -o FOLDER"
        instead = f"; for the whole training, run {command}" if plan.model.name in (*NETWORKS, *TOKEN_MODELS) else ""
        state.progress.on_warning(
            f"no scripts for {layer}, {operation}, the largest slowdown: only {KINDS} are supported{instead}"
        )


def _is_compiled_as_whole(configuration: Configuration) -> bool:
    return not engine_spec(configuration).supports_layer_timing(configuration.variants)


class _LayerRun(ProcessRun):
    """Measures whole steps as in any study, and every layer immediately after each."""

    relative_step_cost = 2.5  # the step, its operations, and the overhead of timing them
    reports_startup = False

    def __init__(self, folder: Path, times: dict[str, OperationTimes], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._folder, self._times = folder, times

    def _warm_up(self, workers: Workers) -> None:
        super()._warm_up(workers)
        request = calls.build_layer_ops(str(self._state.files.weights), str(self._folder))
        for name in list(workers):
            run, worker = workers[name]
            if not _is_compiled_as_whole(run.configuration):
                self._state.progress.on_stage(f"building the layers of {name}")
                with self._record_failure(workers, name):
                    worker.request(request, self._timeout)
                    self._times.setdefault(name, []).append([])

    def _measure_block(self, workers: Workers, name: str, block: TimingBlocks) -> None:
        super()._measure_block(workers, name, block)
        if name in workers and name in self._times:
            _, worker = workers[name]
            with self._record_failure(workers, name):
                timed = worker.request(calls.time_layer_ops(block.steps), self._timeout)
                self._times[name][-1].append(timed)
