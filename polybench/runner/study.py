"""Runs a whole study: files, parity check, process runs, trainings; saves after each phase."""

from __future__ import annotations

import contextlib

from polybench.errors import RequiredEngineMissing
from polybench.planning.plan import resolve
from polybench.results.document import DocumentHeader
from polybench.runner.allocations import count_in_own_processes
from polybench.runner.checkpoint import CheckpointStore
from polybench.runner.parity import check_all, check_then_measure
from polybench.runner.prepare import PreparedStudy, new_header, prepare
from polybench.runner.process_runs import run_all
from polybench.runner.progress import Progress
from polybench.runner.training import train
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.storage.past_durations import CheckScope
from polybench.storage.store import Store


def run_study(
    study: Study,
    progress: Progress,
    *,
    store: Store | None,
    header: DocumentHeader | None = None,
    strict: bool = False,
    parity_check: CheckScope = "new",
) -> StudyDocument:
    """Check and measure every configuration of the study.

    A configuration that fails is a result with the reason. Ctrl-C returns finished measurements, marked as
    interrupted.

    Args:
        study: what to measure.
        progress: receives progress reports between measurements.
        store: where to save the study after each phase; None does not save it.
        header: from `new_header`; the default one has no command line.
        strict: refuse to measure if an engine or device is unavailable.
        parity_check: "new" checks engines without a valid cached check, "all" checks every engine, and "only"
            checks every engine without measuring.

    Raises:
        BadInput: invalid arguments, before anything is started.
        RequiredEngineMissing: with `strict`, before anything is measured.
    """
    header = header or new_header()
    measures = parity_check != "only"
    checkpoints = CheckpointStore(store.folder) if store is not None and measures else None
    plan = resolve(study)
    if store is not None:
        store.ensure_writable()
    lock = checkpoints.lock(header.id) if checkpoints else contextlib.nullcontext()
    with (
        lock,
        prepare(
            plan,
            progress,
            store=store,
            header=header,
            checkpoints=checkpoints,
            observed=study.metrics and measures,
            parity_check=parity_check,
        ) as prepared,
    ):
        prepared.state.write_checkpoint()
        try:
            return run_phases(prepared, strict=strict, parity_check=parity_check)
        except RequiredEngineMissing:
            prepared.state.discard()
            raise


def run_phases(prepared: PreparedStudy, *, strict: bool = False, parity_check: CheckScope = "new") -> StudyDocument:
    """Run all unfinished phases of the study; arguments and errors are those of `run_study`."""
    state, scratch = prepared.state, prepared.scratch

    def measure() -> None:
        run_all(state, prepared.observer)
        count_in_own_processes(state)
        train(state, scratch)

    try:
        if parity_check == "only":
            check_all(state, scratch, strict=strict, required=True)
        else:
            check_then_measure(state, scratch, measure, strict=strict, recheck=parity_check == "all")
    except KeyboardInterrupt:
        state.interrupt()
    return state.finish()
