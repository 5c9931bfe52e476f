"""Measures a study: start reading here.

A study is a log of what happened (`polybench.log`), and its report is computed from it (`results.document.derive`).
`run` measures what the log does not contain yet, so that resuming a study is running it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from polybench.log import Header, Log
from polybench.runner.allocations import count_in_own_processes
from polybench.runner.cold_start import start_programs
from polybench.runner.parity import check_parity
from polybench.runner.prepare import new_header, new_log, open_session
from polybench.runner.process_runs import Operation, ProcessRuns
from polybench.runner.progress import Progress
from polybench.runner.resume import unfinished_log
from polybench.runner.training import train
from polybench.schema.options import CheckScope, Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store


def run_study(
    study: Study,
    progress: Progress,
    *,
    store: Store | None,
    header: Header | None = None,
    strict: bool = False,
    parity_check: CheckScope = "new",
    operations: Sequence[Operation] = (),
) -> StudyDocument:
    """Check and measure every configuration of a study; `header` is by default one without a command line.

    `store` gets the log, unless there is only a parity check. The other arguments, and the errors, are those of `run`.
    """
    saved = store if parity_check != "only" else None
    with new_log(study, header or new_header(), saved) as log:
        return run(study, log, progress, store=store, strict=strict, parity_check=parity_check, operations=operations)


def resume_study(
    id: str, progress: Progress, *, store: Store, strict: bool = False, anonymous: bool = False
) -> StudyDocument:
    """Measure what an interrupted or killed study lacks.

    Raises BadInput if it has finished, it is running, or machine, versions or data have changed; then nothing is
    written.
    """
    with unfinished_log(id, store, anonymous=anonymous) as (log, study):
        return run(study, log, progress, store=store, strict=strict)


def run(
    study: Study,
    log: Log,
    progress: Progress,
    *,
    store: Store | None,
    strict: bool = False,
    parity_check: CheckScope = "new",
    operations: Sequence[Operation] = (),
) -> StudyDocument:
    """Measure what the log does not contain yet, and return the report.

    A configuration that fails is a result with the reason. Ctrl-C ends the study early: its report has the finished
    measurements, marked as interrupted.

    Args:
        study: the study of the log.
        log: with a header at least; each measurement is appended to it.
        progress: receives reports between the measurements.
        store: the folder of the log and of failed workers' logs; None if nothing is saved.
        strict: raise RequiredEngineMissing if an engine or device is unavailable, before anything is measured.
        parity_check: "new" checks engines without a valid cached check, "all" checks every engine, and "only"
            checks every engine without measuring.
        operations: what each round measures; by default whole steps.

    Raises BadInput for invalid arguments, before anything is started.
    """
    measures = parity_check != "only"
    with open_session(study, log, progress, store=store, measures=measures) as session:
        try:
            check_parity(session, parity_check, strict=strict)
            if measures:
                process_runs = ProcessRuns(session, operations)
                while (number := session.next_process_run) is not None:
                    process_runs.measure(number)
                if not operations:
                    start_programs(session)
                count_in_own_processes(session)
                train(session)
        except KeyboardInterrupt:
            return session.end(interrupted=True)
        return session.end()
