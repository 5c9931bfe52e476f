"""Counts native allocations after all timing, in processes that do not time anything afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.meters.availability import native_allocations
from polybench.planning.plan import engine_spec, has_native_count, resolve
from polybench.planning.schedule import COUNTED_STEPS
from polybench.protocol import calls
from polybench.protocol.calls import Request
from polybench.protocol.process import WorkerProcess
from polybench.results.run_state import ConfigurationRun
from polybench.runner.prepare import new_header, prepare
from polybench.runner.progress import Progress
from polybench.runner.state import StudyState
from polybench.runner.workers import load_request, start_worker
from polybench.schema.measurements import AllocationProfile, AllocationsDocument, ConfigurationAllocations
from polybench.schema.options import Study
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument


def count_native_allocations(state: StudyState, workers: Iterable[tuple[ConfigurationRun, WorkerProcess]]) -> None:
    """Count the native allocations of each configuration once, in warm workers that do not time anything afterwards.

    Workers count one at a time, because spinning threads that share cores take several times as long. A
    failure is a warning. Duplicates of a configuration are not counted, since they would have the same
    result.
    """
    counted = [pair for pair in workers if has_native_count(state.plan, pair[0].configuration)]
    if not counted or not _can_trace(state):
        return
    state.progress.on_stage(_stage_text(run for run, _ in counted))
    with state.phase_timer.phase("native_trace"):
        for run, worker in counted:
            _count(state, run, worker)


def count_in_own_processes(state: StudyState) -> None:
    """Count native allocations in separate processes, if the only process run times its pipeline last."""
    if state.completed.native_allocations:
        return
    runs = [run for run in state.active_runs if has_native_count(state.plan, run.configuration)]
    if not runs or not _can_trace(state):
        return
    for group in state.group_by_memory(runs):
        state.progress.on_stage(_stage_text(group))
        with state.phase_timer.phase("native_trace"):
            _start_and_count(state, group)
    state.completed.native_allocations = True
    state.save()


def _can_trace(state: StudyState) -> bool:
    tracer = native_allocations()
    if not tracer.available:
        state.warn(f"{tracer.meter} are not counted: {tracer.reason} ({tracer.hint})")
    return tracer.available


def _stage_text(runs: Iterable[ConfigurationRun]) -> str:
    return f"counting native allocations of {', '.join(run.configuration.name for run in runs)}"


def _start_and_count(state: StudyState, group: Sequence[ConfigurationRun]) -> None:
    """Start the workers of a group in parallel, then count one at a time."""
    with contextlib.ExitStack() as stack:
        workers = [(run, stack.enter_context(start_worker(run, state.logs, "native"))) for run in group]
        for run, worker in workers:
            for request in (load_request(run), state.prepare_request(run)):
                worker.send(request)
        timeout = state.plan.study.timeout
        for run, worker in workers:
            with _record_failure(run, worker):
                worker.receive(load_request(run), timeout)
                worker.receive(state.prepare_request(run), timeout)
                _count(state, run, worker)


def _count(state: StudyState, run: ConfigurationRun, worker: WorkerProcess) -> None:
    request = calls.trace_native_allocations(min(COUNTED_STEPS, state.files.steps_in_epoch))
    with _record_failure(run, worker):
        native = worker.request(request, state.plan.study.timeout)
        run.allocations = msgspec.structs.replace(run.allocations, native=native)


@contextlib.contextmanager
def _record_failure(run: ConfigurationRun, worker: WorkerProcess) -> Iterator[None]:
    try:
        yield
    except (ConfigurationFailed, EngineUnavailable) as error:
        hint = ""
        if isinstance(error, EngineUnavailable):
            hint = f" ({run.interpreter.adapt_hint(error.hint, engine_spec(run.configuration))})"
        run.warnings.append(f"cannot count native allocations: {error}{hint}")
        worker.kill()


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
    request = calls.list_allocation_sites(min(COUNTED_STEPS, state.files.steps_in_epoch))
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
    state: StudyState, run: ConfigurationRun, worker: WorkerProcess, request: Request[AllocationProfile]
) -> AllocationProfile:
    timeout = state.plan.study.timeout
    run.engine_info = worker.receive(load_request(run), timeout).info
    worker.receive(state.prepare_request(run), timeout)
    return worker.receive(request, timeout)


def _build_document(study: StudyDocument, profiles: dict[str, AllocationProfile]) -> AllocationsDocument:
    return AllocationsDocument(
        id=study.id,
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
