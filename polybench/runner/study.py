"""Runs a study from its plan to its document: `run_phases` lists all phases in order.

A study is a generator that pauses between process runs, when none of its workers is running, so that a sweep can
measure its points in turns. `run_study` and `resume_study` run it without a pause.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Generator, Sequence
from typing import ParamSpec

import msgspec

from polybench.errors import BadInput, RequiredEngineMissing
from polybench.log import BlockTimed, Header, Log, StudyResumed
from polybench.machine.host import this_host
from polybench.planning.plan import resolve
from polybench.results.document import is_complete, study_toml
from polybench.results.run_state import StudyRun
from polybench.runner.allocations import count_in_own_processes
from polybench.runner.parity import check_parity, reuse_cached_checks
from polybench.runner.prepare import new_header, prepare
from polybench.runner.process_runs import Operation, ProcessRuns, WholeSteps
from polybench.runner.progress import Progress
from polybench.runner.resume import open_unfinished, refuse_changes, refuse_to_anonymize
from polybench.runner.state import Saving, StudyState
from polybench.runner.training import train
from polybench.schema import units
from polybench.schema.options import CheckScope, Study
from polybench.schema.study import StudyDocument
from polybench.storage.anonymous_log import anonymous_event
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
    header: Header | None = None,
    strict: bool = False,
    parity_check: CheckScope = "new",
    operations: Sequence[Operation] | None = None,
    exclusive: bool | None = None,
) -> StudyInTurns:
    """Check and measure every configuration of the study.

    A configuration that fails is a result with the reason. Ctrl-C returns finished measurements, marked as
    interrupted.

    Args:
        store: where to save the study's log; None keeps it in memory.
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
    measures = parity_check != "only"
    plan = resolve(study)
    with Log.create(store.log_path(header.id) if store and measures else None, anonymous_event) as log:
        log.add(msgspec.structs.replace(header, study=study_toml(plan.study)))
        saving = Saving(log, store)
        try:
            with prepare(plan, progress, saving, host=header.host, measures=measures, exclusive=exclusive) as state:
                try:
                    state.start()
                    return (
                        yield from run_phases(state, strict=strict, parity_check=parity_check, operations=operations)
                    )
                except RequiredEngineMissing:
                    state.delete_worker_logs()
                    raise
        except (BadInput, RequiredEngineMissing):
            if not any(isinstance(event, BlockTimed) for event in log.events):  # nothing was measured
                log.delete()
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
    """Measure what the log of a study lacks that was interrupted or killed; arguments are those of `run_in_turns`.

    A process run without its end is measured again, because no engine can continue the timing block of another
    process. A study stays anonymous, or not, as it has started. Raises BadInput if it has finished, it is running,
    or machine, versions or data have changed; then nothing is written.
    """
    store.ensure_writable()
    with open_unfinished(id, store) as (log, study):
        refuse_to_anonymize(log.header, anonymous=anonymous)
        measured = StudyRun.of(log.events)
        trainings = sum(is_complete(training, study) for run in measured.runs for training in run.trainings)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        process_runs = min(measured.process_runs, study.processes)
        resumed = StudyResumed(resumed_at=now, processes=process_runs, trainings=trainings)
        with prepare(resolve(study), progress, Saving(log, store), host=this_host(), exclusive=exclusive) as state:
            refuse_changes(state)
            state.record(resumed)
            log.release()
            state.start()
            state.warn(
                f"resumed after {units.plural(process_runs, 'process run')}: the state of the machine may have"
                " changed between the earlier measurements and the later ones"
            )
            return (yield from run_phases(state, strict=strict))


run_study = _without_pause("run_study", run_in_turns)
resume_study = _without_pause("resume_study", resume_in_turns)


def run_phases(
    state: StudyState, *, strict: bool, parity_check: CheckScope = "new", operations: Sequence[Operation] | None = None
) -> StudyInTurns:
    """Run all phases that the study has not finished; its log has them."""
    interrupted = False
    try:
        if parity_check == "new":
            reuse_cached_checks(state)
        check_parity(state, strict=strict, required=parity_check == "only")
        if parity_check != "only":
            yield state.measured.process_runs
            yield from ProcessRuns(state, operations or [WholeSteps()]).measure()
            count_in_own_processes(state)
            train(state)
    except KeyboardInterrupt:
        interrupted = True
    return state.finish(interrupted=interrupted)
