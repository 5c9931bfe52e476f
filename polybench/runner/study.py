"""Runs a study from its plan to its document: `run_phases` lists all phases in order."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence

import msgspec

from polybench.errors import RequiredEngineMissing
from polybench.planning.plan import resolve
from polybench.results.document import DocumentHeader, is_complete
from polybench.runner.allocations import count_in_own_processes
from polybench.runner.checkpoint import CheckpointStore, StudyCheckpoint
from polybench.runner.parity import check_parity, reuse_cached_checks
from polybench.runner.prepare import new_header, prepare
from polybench.runner.process_runs import Operation, ProcessRuns, WholeSteps
from polybench.runner.progress import Progress
from polybench.runner.training import train
from polybench.schema.metadata import Resumed
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
    operations: Sequence[Operation] | None = None,
) -> StudyDocument:
    """Check and measure every configuration of the study.

    A configuration that fails is a result with the reason. Ctrl-C returns finished measurements, marked as
    interrupted.

    Args:
        store: where to save the study after each phase; None does not save it.
        header: from `new_header`; the default one has no command line.
        strict: raise RequiredEngineMissing if an engine or device is unavailable, before anything is measured.
        parity_check: "new" checks engines without a valid cached check, "all" checks every engine, and "only"
            checks every engine without measuring.
        operations: what to measure in each round; by default whole steps.

    Raises BadInput for invalid arguments, before anything is started.
    """
    header = header or new_header()
    if store is not None:
        store.ensure_writable()
    saves = store is not None and parity_check != "only"
    with CheckpointStore(store.folder).lock(header.id) if store and saves else contextlib.nullcontext():
        return run_phases(
            study, progress, header=header, store=store, strict=strict, parity_check=parity_check, operations=operations
        )


def resume_study(
    id: str, progress: Progress, *, store: Store, strict: bool = False, anonymous: bool = False
) -> StudyDocument:
    """Resume a study that was interrupted or killed; arguments and errors are those of `run_study`.

    Finished process runs, trained epochs and failed configurations are restored. An unfinished process run is
    measured again, because no engine can continue the timing block of another process. A study that has started
    anonymously stays so. Raises BadInput if the study is not unfinished, it is running, or machine, versions or
    data have changed.
    """
    store.ensure_writable()
    checkpoints = CheckpointStore(store.folder)
    with checkpoints.lock(id):  # before reading, since another process may be finishing it
        checkpoint = checkpoints.read_unchanged(id, StudyCheckpoint)
        study = checkpoint.parse_study()
        process_runs = min(checkpoint.completed.process_runs, study.processes)
        trainings = sum(is_complete(training, study) for run in checkpoint.runs for training in run.trainings)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        header = msgspec.structs.replace(
            checkpoint.header,
            resumed=[*checkpoint.header.resumed, Resumed(now, process_runs, trainings)],
            anonymous=checkpoint.header.anonymous or anonymous,
        )
        return run_phases(study, progress, header=header, store=store, strict=strict, checkpoint=checkpoint)


def run_phases(
    study: Study,
    progress: Progress,
    *,
    header: DocumentHeader,
    store: Store | None,
    strict: bool,
    parity_check: CheckScope = "new",
    operations: Sequence[Operation] | None = None,
    checkpoint: StudyCheckpoint | None = None,
) -> StudyDocument:
    """Run all phases of a study that `checkpoint` has not finished; each of them saves the document at its end.

    The caller has locked the study; the other arguments and errors are those of `run_study`.
    """
    plan = resolve(study)
    with prepare(plan, progress, header=header, store=store, parity_check=parity_check) as state:
        if checkpoint is not None:
            state.restore(checkpoint)
        else:
            state.write_checkpoint()
        try:
            if parity_check == "new":
                reuse_cached_checks(state)
            check_parity(state, strict=strict, required=parity_check == "only")
            if parity_check != "only":
                with ProcessRuns(state, operations or [WholeSteps()]) as process_runs:
                    while not process_runs.confirm_cached_checks():
                        check_parity(state)
                    process_runs.measure()
                count_in_own_processes(state)
                train(state)
        except KeyboardInterrupt:
            state.interrupt()
        except RequiredEngineMissing:
            if checkpoint is None:
                state.discard()
            raise
        return state.finish()
