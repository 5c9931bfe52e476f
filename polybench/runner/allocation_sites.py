"""Finds allocation sites: profiles a few steps of each configuration in its own process, without timing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.planning.plan import resolve
from polybench.planning.schedule import COUNTED_STEPS
from polybench.protocol.messages import AllocationSitesListed, ListAllocationSites, Loaded, Prepared
from polybench.protocol.process import WorkerProcess
from polybench.results.run_state import ConfigurationRun
from polybench.runner.progress import Progress
from polybench.runner.state import StudyState
from polybench.runner.study import new_header, prepare
from polybench.runner.workers import load_request, start_worker
from polybench.schema.measurements import AllocationProfile, AllocationsDocument, ConfigurationAllocations
from polybench.schema.options import Study
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument


def find_allocation_sites(study: Study, progress: Progress, *, argv: Sequence[str] = ()) -> AllocationsDocument:
    """Profile the allocation sites of every configuration; polybench does not save the result.

    A configuration that fails records the reason; the others continue.

    Args:
        study: with the configurations; its settings for processes and rounds have no effect.
        progress: receives progress reports.
        argv: the command line, for the document.

    Raises:
        BadInput: invalid arguments, before anything is started.
    """
    profiles: dict[str, AllocationProfile] = {}
    # Prevents warnings about the parity check and about the number of processes.
    study = msgspec.structs.replace(study, processes=1, parity=False)
    with prepare(resolve(study), progress, header=new_header(argv)) as prepared:
        state = prepared.state
        try:
            for group in state.group_by_memory([run for run in state.active_runs if run.configuration.repeat == 1]):
                progress.on_stage(f"profiling allocations of {', '.join(run.configuration.name for run in group)}")
                profiles |= _profile_group(state, group)
        except KeyboardInterrupt:
            state.interrupt()
        return _build_document(state.finish(), profiles)


def _profile_group(state: StudyState, group: Sequence[ConfigurationRun]) -> dict[str, AllocationProfile]:
    """Start the group's workers in parallel; configurations that fail are omitted."""
    request = ListAllocationSites(min(COUNTED_STEPS, state.files.steps_in_epoch))
    profiles = {}
    with contextlib.ExitStack() as stack:
        workers = [(run, stack.enter_context(start_worker(run, state.logs, "allocations"))) for run in group]
        for run, worker in workers:
            for message in (load_request(run), state.prepare_request(run), request):
                worker.send(message)
        for run, worker in workers:
            try:
                profiles[run.configuration.name] = _receive_profile(state, run, worker, request)
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.mark_failed(error, worker.log_path)
                worker.kill()
    return profiles


def _receive_profile(
    state: StudyState, run: ConfigurationRun, worker: WorkerProcess, request: ListAllocationSites
) -> AllocationProfile:
    timeout = state.plan.study.timeout
    run.engine_info = worker.receive(load_request(run), Loaded, timeout).info
    worker.receive(state.prepare_request(run), Prepared, timeout)
    return worker.receive(request, AllocationSitesListed, timeout).profile


def _build_document(study: StudyDocument, profiles: dict[str, AllocationProfile]) -> AllocationsDocument:
    return AllocationsDocument(
        created=study.created,
        polybench=study.polybench,
        argv=study.argv,
        study=study.study,
        settings=study.settings,
        host=study.host,
        interference=study.interference,
        warnings=study.warnings,
        configurations=[
            _configuration_allocations(result, profiles.get(result.configuration)) for result in study.results
        ],
    )


def _configuration_allocations(result: Result, profile: AllocationProfile | None) -> ConfigurationAllocations:
    allocations = ConfigurationAllocations(**status_fields(result))
    if profile is not None:
        allocations.source, allocations.coverage, allocations.sites = (
            profile.source,
            profile.coverage,
            profile.sites,
        )
        allocations.bytes_per_step = sum(site.bytes_per_step for site in profile.sites)
        allocations.count_per_step = sum(site.count_per_step for site in profile.sites)
    return allocations
