"""Counts allocations after all timing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.log import AllocationsCounted, AllreduceTimed, MemoryMeasured, PipelineTimed
from polybench.machine.meters.availability import native_allocations
from polybench.planning.plan import engine_spec, has_native_count, needs_native_count_process
from polybench.planning.schedule import COUNTED_STEPS
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.session import Session
from polybench.runner.workers import load_request, start_worker

_MAX_NAMED = 5
"""Tensors that a warning names; more are counted."""


def count_after_timing(
    session: Session, workers: Iterable[tuple[ConfigurationRun, WorkerProcess]], block_steps: int
) -> None:
    """Measure in warm workers what would affect step times: allocations, the pipeline alone, the all-reduce.

    Before that, name the tensors of float64, since it may take a forward pass.
    """
    timeout, counts = session.plan.study.timeout, session.plan.study.metrics
    for run, worker in workers:
        with _warn_of_failure(run, "look for tensors of float64"):
            if names := worker.request(calls.find_float64(), timeout):
                run.warn(_describe_float64(names))
    for run, worker in workers:
        if counts:
            with _warn_of_failure(run, "measure memory and allocations"):
                counted = worker.request(calls.count_allocations(counted_steps(session)), timeout)
                name, allocations = run.configuration.name, counted.allocations
                run.record(MemoryMeasured(configuration=name, memory=counted.memory))
                run.record(AllocationsCounted(configuration=name, host=allocations.host, device=allocations.device))
    for run, worker in workers:
        if session.files.stream is not None:  # batches are preloaded afterwards
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


def count_native_allocations(session: Session, workers: Iterable[tuple[ConfigurationRun, WorkerProcess]]) -> None:
    """Count the native allocations of each configuration once, in warm workers that do not time anything afterwards.

    `count_in_own_processes` counts the others.
    Workers count one at a time, because spinning threads that share cores take several times as long. A
    failure is a warning. Duplicates of a configuration are not counted, since they would have the same
    result.
    """
    counted = [
        (run, worker)
        for run, worker in workers
        if has_native_count(session.plan, run.configuration)
        and not needs_native_count_process(session.plan.study, run.configuration)
    ]
    if not counted or not _can_trace(session):
        return
    session.progress.on_stage(f"counting native allocations of {names_of(run for run, _ in counted)}")
    with session.phase_timer.phase("native_trace"):
        for run, worker in counted:
            with _native_failure(run, worker):
                _count(session, run, worker)


def count_in_own_processes(session: Session) -> None:
    """Count native allocations in separate processes, without the engines' memory pools.

    Also counts what an interrupted study did not count in its warm workers.
    """
    plan, timeout = session.plan, session.plan.study.timeout
    runs = [
        run
        for run in session.active_runs
        if has_native_count(plan, run.configuration) and run.allocations.native is None and run.native_failure is None
    ]
    if not runs or not _can_trace(session):
        return
    for group in session.group_by_memory(runs):
        session.progress.on_stage(f"counting native allocations of {names_of(group)}")
        with session.phase_timer.phase("native_trace"), contextlib.ExitStack() as stack:
            workers = []
            for run in group:
                variables = engine_spec(run.configuration).counting_environment
                worker = stack.enter_context(start_worker(run, session.logs, "native", extra_env_vars=variables))
                worker.send(load_request(run))
                worker.send(session.prepare_request(run))
                workers.append((run, worker))
            for run, worker in workers:
                with _native_failure(run, worker):
                    worker.receive(load_request(run), timeout)
                    worker.receive(session.prepare_request(run), timeout)
                    _count(session, run, worker)
    session.check_log()


def counted_steps(session: Session) -> int:
    """Return the number of training steps that are counted."""
    return min(COUNTED_STEPS, session.files.steps_in_epoch)


def _can_trace(session: Session) -> bool:
    tracer = native_allocations()
    if not tracer.available:
        session.warn(f"{tracer.meter} are not counted: {tracer.reason} ({tracer.hint})", names=True)
    return tracer.available


def names_of(runs: Iterable[ConfigurationRun]) -> str:
    """Return the names of configurations, for a progress report."""
    return ", ".join(run.configuration.name for run in runs)


def _count(session: Session, run: ConfigurationRun, worker: WorkerProcess) -> None:
    native = worker.request(calls.trace_native_allocations(counted_steps(session)), session.plan.study.timeout)
    run.record(AllocationsCounted(configuration=run.configuration.name, native=native))


def _describe_float64(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return (
        f"float64 in a training in float32: {', '.join(names[:_MAX_NAMED])}{more}; it takes twice the memory and, on a"
        " CPU, about twice the time: convert these tensors, and constants of float64 that promote them"
    )


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
