"""The layers of a network, each timed alone, in the same rounds and processes as whole steps."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from polybench.core.document.layers import LayersDocument
from polybench.core.errors import BadInput
from polybench.core.job import Job
from polybench.core.pieces import pieces
from polybench.core.spec import Cell, Study
from polybench.export.layers_rows import worst
from polybench.measuring.progress import Progress
from polybench.measuring.replicates import measure
from polybench.measuring.rounds import Replicate, Team
from polybench.measuring.state import StudyState
from polybench.measuring.study import new_context, started
from polybench.measuring.verification import verified
from polybench.measuring.workers import start_reference
from polybench.plain import NETWORKS, OF_TOKENS
from polybench.plain.layer import KINDS, write_programs
from polybench.planning.pace import Block
from polybench.planning.plan import resolve, row
from polybench.report.anonymous import anonymous
from polybench.report.document import Context
from polybench.report.layers import Times, layers_document
from polybench.report.saved_studies import Store
from polybench.wire.layer_messages import (
    LayersOpened,
    LayersTimed,
    LayersWritten,
    OpenLayers,
    TimeLayers,
    WriteLayers,
)
from polybench.wire.messages import Prepare, Prepared


def run_layers(
    study: Study,
    progress: Progress,
    *,
    store: Store | None = None,
    context: Context | None = None,
    strict: bool = False,
    inside: bool = False,
    only: str | None = None,
    script: Path | None = None,
) -> LayersDocument:
    """Check every cell of the study, then measure whole steps and every layer alone.

    Args:
        study: what to measure; `metrics` are left out.
        progress: told what runs, between measurements.
        store: where to save the document; None does not.
        context: of `new_context`, as of `run_study`.
        strict: refuse to measure when an engine or device is unavailable.
        inside: whether residual blocks have a row for each of their layers.
        only: a layer, where the others and whole steps are not asked for.
        script: a folder that gets programs which show the part that loses most.

    Raises:
        BadInput: before anything is started.
        StrictlyUnavailable: with `strict`, before anything is measured.
    """
    if study.input != "preload" or "bf16" in study.precisions:
        raise BadInput("layers are timed with --input preload and --precision fp32 or tf32 only")
    if store is not None:
        store.ensure_writable()
    if script is not None:
        _ensure_writable(script)
    study = msgspec.structs.replace(study, metrics=False)
    context = context or new_context()
    times: dict[str, Times] = {}
    with started(resolve(study), progress, context=context) as running:
        state = running.state
        folder = running.scratch / "layers"

        def parts() -> None:
            if not folder.exists():
                progress.stage("computing each layer's input in the float64 reference")
                _write_layers(state, folder)
            measure(state, None, partial(_Replicate, folder, times))

        try:
            verified(state, running.scratch, parts, strict=strict)
        except KeyboardInterrupt:
            state.interrupt()
        cells = [cell.name for cell in state.plan.cells if _whole_step(cell)]
        make = partial(layers_document, state.finish(), state.plan.model, times, cells, only=only)
        if script is not None and times:
            _write_programs(state, make(inside=True), folder, script)
        document = make(inside=inside)
    if context.anonymous:
        document = anonymous(document, store.folder if store else None)
    if store is not None and (why_not := store.try_to_save(document)) is not None:
        progress.warn(why_not)
    return document


def _write_layers(state: StudyState, folder: Path) -> None:
    """The tensors of all layers, of as many images as the identity check takes."""
    folder.mkdir()
    timeout, files = state.plan.study.timeout, state.files
    job = Job(state.plan.model, state.plan.workload, "cpu", "float64", seed=state.plan.study.seed)
    with start_reference(state.logs, timeout, state.plan.cpus) as worker:
        worker.ask(Prepare(job, str(files.weights), files.parity), Prepared, timeout)
        worker.ask(WriteLayers(str(folder)), LayersWritten, timeout)


def _ensure_writable(script: Path) -> None:
    try:
        script.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=script):
            pass
    except OSError as error:
        raise BadInput(f"cannot write programs to --script {script}: {error.strerror}") from error


def _write_programs(state: StudyState, document: LayersDocument, tensors: Path, script: Path) -> None:
    found = worst(document)
    if found is None:
        return
    layer, part = found.layer, found.part
    plan = state.plan
    index, piece = next(one for one in enumerate(pieces(plan.model)) if one[1].name == layer)
    try:
        files = write_programs(
            script, piece, part, tensors / f"{index}.npz", state.files.weights, plan.workload
        )
    except OSError as error:  # what was measured counts more
        state.progress.warn(f"no programs: cannot write to {script}: {error.strerror}")
        return
    if not files:
        whole = f"polybench compare --model {plan.model.name} --describe FOLDER"
        instead = f"; of the whole training: {whole}" if plan.model.name in (*NETWORKS, *OF_TOKENS) else ""
        state.progress.warn(f"no programs: {layer}, {part} loses most; there are some for {KINDS}{instead}")


def _whole_step(cell: Cell) -> bool:
    return not row(cell).times_layers(cell.variants)


class _Replicate(Replicate):
    """Measures whole steps as any study does, and every layer right after them."""

    cost_of_a_step = 2.5  # itself, its parts, and asking for each of them
    tells_startup = False

    def __init__(self, folder: Path, times: dict[str, Times], *given: Any) -> None:
        super().__init__(*given)
        self._folder, self._times = folder, times

    def _warm_up(self, team: Team) -> None:
        super()._warm_up(team)
        request = OpenLayers(str(self._state.files.weights), str(self._folder))
        for name in list(team):
            record, worker = team[name]
            if not _whole_step(record.cell):
                self._state.progress.stage(f"building the layers of {name}")
                with self._failures_noted(team, name):
                    worker.ask(request, LayersOpened, self._timeout)
                    self._times.setdefault(name, []).append([])

    def _measure(self, team: Team, name: str, block: Block) -> None:
        super()._measure(team, name, block)
        if name in team and name in self._times:
            _, worker = team[name]
            with self._failures_noted(team, name):
                answer = worker.ask(TimeLayers(block.steps), LayersTimed, self._timeout)
                self._times[name][-1].append(answer.parts)
