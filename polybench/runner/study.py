"""Runs a study from its plan to its document: `run_phases` lists all phases in order.

A study is a generator that pauses between process runs, when none of its workers is running, so that a sweep can
measure its points in turns. `run_study` and `resume_study` run it without a pause.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable, Generator, Sequence
from typing import ParamSpec

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
from polybench.runner.state import StudyState
from polybench.runner.training import train
from polybench.schema.metadata import Resumed
from polybench.schema.options import CheckScope, Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

StudyInTurns = Generator[int, None, StudyDocument]
"""A study that pauses before its process runs and after each of them, and yields how many are completed.

A KeyboardInterrupt that is thrown into it ends it like Ctrl-C. It returns the document.
"""

Arguments = ParamSpec("Arguments")


def _without_pause(name: str, study_in_turns: Callable[Arguments, StudyInTurns]) -> Callable[Arguments, StudyDocument]:
    """Return the function with this name, which runs such a study to its end."""

    @functools.wraps(study_in_turns)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> StudyDocument:
        study = study_in_turns(*arguments, **options)
        try:
            while True:
                next(study)
        except StopIteration as end:
            document: StudyDocument = end.value
            return document

    run.__name__ = run.__qualname__ = name
    return run


def run_in_turns(
    study: Study,
    progress: Progress,
    *,
    store: Store | None,
    header: DocumentHeader | None = None,
    strict: bool = False,
    parity_check: CheckScope = "new",
    operations: Sequence[Operation] | None = None,
    exclusive: bool | None = None,
) -> StudyInTurns:
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
        exclusive: the value of `exclusive_lock`, if the caller holds it.

    Raises BadInput for invalid arguments, before anything is started.
    """
    header = header or new_header()
    if store is not None:
        store.ensure_writable()
    saves = store is not None and parity_check != "only"
    lock = CheckpointStore(store.folder).lock(header.id) if store and saves else contextlib.nullcontext()
    with (
        lock,
        prepare(
            resolve(study), progress, header=header, store=store, parity_check=parity_check, exclusive=exclusive
        ) as state,
    ):
        state.write_checkpoint()
        try:
            return (yield from run_phases(state, strict=strict, parity_check=parity_check, operations=operations))
        except RequiredEngineMissing:
            state.discard()
            raise


def resume_in_turns(
    id: str,
    progress: Progress,
    *,
    store: Store,
    strict: bool = False,
    anonymous: bool = False,
    exclusive: bool | None = None,
) -> StudyInTurns:
    """Resume a study that was interrupted or killed; arguments and errors are those of `run_in_turns`.

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
        plan = resolve(study)
        with prepare(plan, progress, header=header, store=store, exclusive=exclusive) as state:
            state.restore(checkpoint)
            return (yield from run_phases(state, strict=strict))


run_study = _without_pause("run_study", run_in_turns)
resume_study = _without_pause("resume_study", resume_in_turns)


def run_phases(
    state: StudyState, *, strict: bool, parity_check: CheckScope = "new", operations: Sequence[Operation] | None = None
) -> StudyInTurns:
    """Run all phases that the study has not finished; each of them saves the document at its end."""
    try:
        if parity_check == "new":
            reuse_cached_checks(state)
        check_parity(state, strict=strict, required=parity_check == "only")
        if parity_check != "only":
            yield state.completed.process_runs
            with ProcessRuns(state, operations or [WholeSteps()]) as process_runs:
                while not process_runs.confirm_cached_checks():
                    check_parity(state)
                yield from process_runs.measure()
            count_in_own_processes(state)
            train(state)
    except KeyboardInterrupt:
        state.interrupt()
    return state.finish()
