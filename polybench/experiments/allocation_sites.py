"""Finds the sites in the code of an engine that allocate memory, for `polybench layers --allocations`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from polybench.protocol import calls
from polybench.runner.allocations import counted_steps, names_of
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.prepare import new_header, new_log, open_session
from polybench.runner.progress import Progress
from polybench.runner.session import Session
from polybench.runner.workers import load_request, record_failure, start_workers
from polybench.schema.measurements import AllocationProfile, AllocationsDocument, ConfigurationAllocations
from polybench.schema.options import Study
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument


def find_allocation_sites(study: Study, progress: Progress, *, argv: Sequence[str] = ()) -> AllocationsDocument:
    """Profile the allocation sites of every configuration; polybench does not save the result.

    A configuration that fails records the reason; the others continue. The study's processes and rounds have no
    effect.
    """
    profiles: dict[str, AllocationProfile] = {}
    # Prevents warnings about the parity check and about the number of processes.
    study = msgspec.structs.replace(study, processes=1, parity=False, metrics=False)
    with new_log(study, new_header(argv), None) as log, open_session(study, log, progress) as session:
        interrupted = False
        try:
            for group in session.group_by_memory([run for run in session.active_runs if run.configuration.repeat == 1]):
                progress.on_stage(f"profiling allocations of {names_of(group)}")
                profiles |= _profile_group(session, group)
        except KeyboardInterrupt:
            interrupted = True
        return _build_document(session.end(interrupted=interrupted), profiles)


def _profile_group(session: Session, group: Sequence[ConfigurationRun]) -> dict[str, AllocationProfile]:
    """Start the group's workers in parallel; configurations that fail are omitted."""
    profiles, timeout = {}, session.plan.study.timeout
    request = calls.list_allocation_sites(counted_steps(session))
    with start_workers(group, session.logs, "allocations") as workers:
        for run, worker in workers.values():
            for message in (load_request(run), session.prepare_request(run), request):
                worker.send(message)
        for name, (run, worker) in list(workers.items()):
            with record_failure(workers, name):
                run.engine_info = worker.receive(load_request(run), timeout).info
                worker.receive(session.prepare_request(run), timeout)
                profiles[name] = worker.receive(request, timeout)
    return profiles


def _build_document(study: StudyDocument, profiles: dict[str, AllocationProfile]) -> AllocationsDocument:
    return AllocationsDocument(
        **study.header(),
        study=study.study,
        settings=study.settings,
        interference=study.interference,
        warnings=study.warnings,
        configurations=[
            _configuration_allocations(result, profiles.get(result.configuration)) for result in study.results
        ],
    )


def _configuration_allocations(result: Result, profile: AllocationProfile | None) -> ConfigurationAllocations:
    allocations = ConfigurationAllocations(**status_fields(result))
    if profile is not None:
        allocations.source, allocations.coverage, allocations.sites = (profile.source, profile.coverage, profile.sites)
        allocations.bytes_per_step = sum(site.bytes_per_step for site in profile.sites)
        allocations.count_per_step = sum(site.count_per_step for site in profile.sites)
    return allocations
