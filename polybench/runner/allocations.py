"""Counts allocations after all timing, and finds allocation sites for `polybench layers --allocations`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.log import AllocationsCounted, AllreduceTimed, Log, MemoryMeasured, PipelineTimed
from polybench.machine.meters.availability import native_allocations
from polybench.planning.plan import engine_spec, has_native_count, needs_native_count_process, resolve
from polybench.planning.schedule import COUNTED_STEPS
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.results.document import study_toml
from polybench.results.run_state import ConfigurationRun
from polybench.runner.prepare import new_header, prepare
from polybench.runner.progress import Progress
from polybench.runner.state import Saving, StudyState
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
                name, allocations = run.configuration.name, counted.allocations
                run.record(MemoryMeasured(configuration=name, memory=counted.memory))
                run.record(AllocationsCounted(configuration=name, host=allocations.host, device=allocations.device))
    for run, worker in workers:
        if state.files.stream is not None:  # batches are preloaded afterwards
            with _warn_of_failure(run, "time pipeline and training separately"):
                timed = worker.request(calls.time_pipeline_and_training(block_steps), timeout)
                run.record(PipelineTimed(configuration=run.configuration.name, **msgspec.structs.asdict(timed)))
    for run, worker in workers:
        if counts and run.configuration.replicas > 1:
            with _warn_of_failure(run, "time the all-reduce of gradients"):
                seconds = worker.request(calls.time_allreduce(block_steps), timeout)
                if seconds is not None:
                    with_it, without = seconds
                    name = run.configuration.name
                    run.record(AllreduceTimed(configuration=name, with_seconds=with_it, without_seconds=without))


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
            with _native_failure(run, worker):
                _count(state, run, worker)


def count_in_own_processes(state: StudyState) -> None:
    """Count native allocations in separate processes, without the engines' memory pools.

    Also counts what an interrupted study did not count in its warm workers.
    """
    plan, timeout = state.plan, state.plan.study.timeout
    runs = [
        run
        for run in state.active_runs
        if has_native_count(plan, run.configuration) and run.allocations.native is None and run.native_failure is None
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
                with _native_failure(run, worker):
                    worker.receive(load_request(run), timeout)
                    worker.receive(state.prepare_request(run), timeout)
                    _count(state, run, worker)
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
    run.record(AllocationsCounted(configuration=run.configuration.name, native=native))


@contextlib.contextmanager
def _warn_of_failure(run: ConfigurationRun, what: str) -> Iterator[None]:
    """Turn the failure of a worker into a warning of its run."""
    try:
        yield
    except (ConfigurationFailed, EngineUnavailable) as error:
        run.warn(_describe(run, what, error))


@contextlib.contextmanager
def _native_failure(run: ConfigurationRun, worker: WorkerProcess) -> Iterator[None]:
    """Record why a worker cannot count native allocations, which is not tried again, and end it."""
    try:
        yield
    except (ConfigurationFailed, EngineUnavailable) as error:
        text = _describe(run, "count native allocations", error)
        run.record(AllocationsCounted(configuration=run.configuration.name, native_failure=text))
        worker.kill()


def _describe(run: ConfigurationRun, what: str, error: ConfigurationFailed | EngineUnavailable) -> str:
    hint = ""
    if isinstance(error, EngineUnavailable):
        hint = f" ({run.interpreter.adapt_hint(error.hint, engine_spec(run.configuration))})"
    return f"cannot {what}: {error}{hint}"


def find_allocation_sites(study: Study, progress: Progress, *, argv: Sequence[str] = ()) -> AllocationsDocument:
    """Profile the allocation sites of every configuration; polybench does not save the result.

    A configuration that fails records the reason; the others continue. The study's processes and rounds have no
    effect.
    """
    profiles: dict[str, AllocationProfile] = {}
    # Prevents warnings about the parity check and about the number of processes.
    study = msgspec.structs.replace(study, processes=1, parity=False, metrics=False)
    plan, header, log = resolve(study), new_header(argv), Log()
    log.add(msgspec.structs.replace(header, study=study_toml(plan.study)))
    with prepare(plan, progress, Saving(log), host=header.host) as state:
        state.start()
        interrupted = False
        try:
            for group in state.group_by_memory([run for run in state.active_runs if run.configuration.repeat == 1]):
                progress.on_stage(f"profiling allocations of {_names(group)}")
                profiles |= _profile_group(state, group)
        except KeyboardInterrupt:
            interrupted = True
        return _build_document(state.finish(interrupted=interrupted), profiles)


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
