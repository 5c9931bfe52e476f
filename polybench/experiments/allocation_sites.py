"""Finds the sites in the code of an engine that allocate memory, for `polybench layers --allocations`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from polybench.experiments.outcome import Outcome
from polybench.log import AllocationsCounted, Header, Log
from polybench.protocol import calls
from polybench.results.allocation_sites import derive_allocations
from polybench.runner.allocations import counted_steps, names_of
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.prepare import header_of_command, new_header, new_log, open_session
from polybench.runner.progress import Progress
from polybench.runner.resume import unfinished_log
from polybench.runner.session import Session
from polybench.runner.workers import load_request, record_failure, start_workers
from polybench.schema.measurements import AllocationsDocument
from polybench.schema.options import Study
from polybench.storage.store import Store


def find_allocation_sites(
    study: Study, progress: Progress, *, store: Store | None = None, header: Header | None = None
) -> Outcome[AllocationsDocument]:
    """Profile the allocation sites of every configuration.

    A configuration that fails records the reason; the others continue. The study's processes and rounds have no
    effect. Other arguments and errors are those of `run_study`.
    """
    # Prevents warnings about the parity check and about the number of processes.
    study = msgspec.structs.replace(study, processes=1, parity=False, metrics=False)
    with new_log(study, header_of_command(header or new_header(), "allocations"), store) as log:
        return _profile(study, log, progress, store)


def resume_allocation_sites(
    id: str, progress: Progress, *, store: Store, anonymous: bool = False
) -> Outcome[AllocationsDocument]:
    """Profile the configurations that an interrupted or killed log lacks; errors are those of `resume_study`."""
    with unfinished_log(id, store, anonymous=anonymous) as (log, study):
        return _profile(study, log, progress, store)


def _profile(study: Study, log: Log, progress: Progress, store: Store | None) -> Outcome[AllocationsDocument]:
    with open_session(study, log, progress, store=store) as session:
        missing = [run for run in session.active_runs if run.configuration.repeat == 1 and run.profile is None]
        interrupted = False
        try:
            for group in session.group_by_memory(missing):
                progress.on_stage(f"profiling allocations of {names_of(group)}")
                _profile_group(session, group)
        except KeyboardInterrupt:
            interrupted = True
        session.end(interrupted=interrupted)
    return Outcome(derive_allocations(log.events), [log.header.id], log.text)


def _profile_group(session: Session, group: Sequence[ConfigurationRun]) -> None:
    """Start the group's workers in parallel; configurations that fail have no profile."""
    timeout = session.plan.study.timeout
    request = calls.list_allocation_sites(counted_steps(session))
    with start_workers(group, session.logs, "allocations") as workers:
        for run, worker in workers.values():
            for message in (load_request(run), session.prepare_request(run), request):
                worker.send(message)
        for name, (run, worker) in list(workers.items()):
            with record_failure(workers, name):
                run.record_loaded(worker.receive(load_request(run), timeout))
                worker.receive(session.prepare_request(run), timeout)
                run.record(AllocationsCounted(configuration=name, profile=worker.receive(request, timeout)))
