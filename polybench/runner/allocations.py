"""Counts allocations after all timing, and finds allocation sites for `polybench layers --allocations`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.meters.availability import native_allocations
from polybench.planning.plan import engine_spec, has_native_count, needs_native_count_process, resolve
from polybench.planning.schedule import COUNTED_STEPS
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.results.run_state import ConfigurationRun
from polybench.runner.prepare import new_header, prepare
from polybench.runner.progress import Progress
from polybench.runner.state import StudyState
from polybench.runner.workers import load_request, record_failure, start_worker, start_workers
from polybench.schema.measurements import AllocationProfile, AllocationsDocument, ConfigurationAllocations
from polybench.schema.options import Study
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument


def count_after_timing(
    state: StudyState, workers: Iterable[tuple[ConfigurationRun, WorkerProcess]], block_steps: int
) -> None:
    """Measure in warm workers what would affect step times: allocations, the pipeline alone, the all-reduce."""
    timeout, counts = state.plan.study.timeout, state.plan.study.metrics
    for run, worker in workers:
        if counts:
            with _warn_of_failure(run, "measure memory and allocations"):
                counted = worker.request(calls.count_allocations(_counted_steps(state)), timeout)
                run.memory, run.allocations = counted.memory, counted.allocations
    for run, worker in workers:
        if state.files.stream is not None:  # batches are preloaded afterwards
            with _warn_of_failure(run, "time pipeline and training separately"):
                run.pipeline_and_training = worker.request(calls.time_pipeline_and_training(block_steps), timeout)
    for run, worker in workers:
        if counts and run.configuration.replicas > 1:
            with _warn_of_failure(run, "time the all-reduce of gradients"):
                run.allreduce_times = worker.request(calls.time_allreduce(block_steps), timeout)


def count_native_allocations(state: StudyState, workers: Iterable[tuple[ConfigurationRun, WorkerProcess]]) -> None:
    """Count the native allocations of each configuration once, in warm workers that do not time anything afterwards.

    `count_in_own_processes` counts the others.
    Workers count one at a time, because spinning threads that share cores take several times as long. A
    failure is a warning. Duplicates of a configuration are not counted, since they would have the same
    result.
    """
    counted = [
        (run, worker)
        for run, worker in workers
        if has_native_count(state.plan, run.configuration)
        and not needs_native_count_process(state.plan.study, run.configuration)
    ]
    if not counted or not _can_trace(state):
        return
    state.progress.on_stage(f"counting native allocations of {_names(run for run, _ in counted)}")
    with state.phase_timer.phase("native_trace"):
        for run, worker in counted:
            with _warn_of_failure(run, "count native allocations", worker):
                _count(state, run, worker)


def count_in_own_processes(state: StudyState) -> None:
    """Count native allocations in separate processes, without the engines' memory pools.

    Also counts what an interrupted study did not count in its warm workers.
    """
    plan, timeout = state.plan, state.plan.study.timeout
    runs = [
        run
        for run in state.active_runs
        if has_native_count(plan, run.configuration)
        and run.allocations.native is None
        and (not state.completed.native_allocations or needs_native_count_process(plan.study, run.configuration))
    ]
    if not runs or not _can_trace(state):
        return
    for group in state.group_by_memory(runs):
        state.progress.on_stage(f"counting native allocations of {_names(group)}")
        with state.phase_timer.phase("native_trace"), contextlib.ExitStack() as stack:
            workers = []
            for run in group:
                variables = engine_spec(run.configuration).counting_environment
                worker = stack.enter_context(start_worker(run, state.logs, "native", extra_env_vars=variables))
                worker.send(load_request(run))
                worker.send(state.prepare_request(run))
                workers.append((run, worker))
            for run, worker in workers:
                with _warn_of_failure(run, "count native allocations", worker):
                    worker.receive(load_request(run), timeout)
                    worker.receive(state.prepare_request(run), timeout)
                    _count(state, run, worker)
    state.completed.native_allocations = True
    state.save()


def _counted_steps(state: StudyState) -> int:
    return min(COUNTED_STEPS, state.files.steps_in_epoch)


def _can_trace(state: StudyState) -> bool:
    tracer = native_allocations()
    if not tracer.available:
        state.warn(f"{tracer.meter} are not counted: {tracer.reason} ({tracer.hint})", names=True)
    return tracer.available


def _names(runs: Iterable[ConfigurationRun]) -> str:
    return ", ".join(run.configuration.name for run in runs)


def _count(state: StudyState, run: ConfigurationRun, worker: WorkerProcess) -> None:
    native = worker.request(calls.trace_native_allocations(_counted_steps(state)), state.plan.study.timeout)
    run.allocations = msgspec.structs.replace(run.allocations, native=native)


@contextlib.contextmanager
def _warn_of_failure(run: ConfigurationRun, what: str, worker: WorkerProcess | None = None) -> Iterator[None]:
    """Turn the failure of a worker into a warning of its run, and end `worker`."""
    try:
        yield
    except (ConfigurationFailed, EngineUnavailable) as error:
        hint = ""
        if isinstance(error, EngineUnavailable):
            hint = f" ({run.interpreter.adapt_hint(error.hint, engine_spec(run.configuration))})"
        run.warnings.append(f"cannot {what}: {error}{hint}")
        if worker is not None:
            worker.kill()


def find_allocation_sites(study: Study, progress: Progress, *, argv: Sequence[str] = ()) -> AllocationsDocument:
    """Profile the allocation sites of every configuration; polybench does not save the result.

    A configuration that fails records the reason; the others continue. The study's processes and rounds have no
    effect.
    """
    profiles: dict[str, AllocationProfile] = {}
    # Prevents warnings about the parity check and about the number of processes.
    study = msgspec.structs.replace(study, processes=1, parity=False, metrics=False)
    with prepare(resolve(study), progress, header=new_header(argv)) as state:
        try:
            for group in state.group_by_memory([run for run in state.active_runs if run.configuration.repeat == 1]):
                progress.on_stage(f"profiling allocations of {_names(group)}")
                profiles |= _profile_group(state, group)
        except KeyboardInterrupt:
            state.interrupt()
        return _build_document(state.finish(), profiles)


def _profile_group(state: StudyState, group: Sequence[ConfigurationRun]) -> dict[str, AllocationProfile]:
    """Start the group's workers in parallel; configurations that fail are omitted."""
    profiles, timeout = {}, state.plan.study.timeout
    request = calls.list_allocation_sites(_counted_steps(state))
    with start_workers(group, state.logs, "allocations") as workers:
        for run, worker in workers.values():
            for message in (load_request(run), state.prepare_request(run), request):
                worker.send(message)
        for name, (run, worker) in list(workers.items()):
            with record_failure(workers, name):
                run.engine_info = worker.receive(load_request(run), timeout).info
                worker.receive(state.prepare_request(run), timeout)
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
