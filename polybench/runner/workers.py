"""Starts the workers of a study, each in its Python environment."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from polybench.engines import ENGINES
from polybench.engines.job import COLD_START
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.log import PlannedConfiguration
from polybench.planning.environments import resolve_environment
from polybench.planning.plan import Plan, engine_spec
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, Loaded, Request
from polybench.protocol.environment import recorded_env_vars, unrecorded_env_hash, worker_environment
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter, resolve_interpreter
from polybench.protocol.process import WorkerProcess
from polybench.results.document import collect_versions, planned_configurations
from polybench.runner.configuration_run import ConfigurationRun
from polybench.schema.result import library_versions


def start_worker(
    run: ConfigurationRun, logs: Path, name: str, *, cold: bool = False, extra_env_vars: Mapping[str, str] | None = None
) -> WorkerProcess:
    """Start a process for a configuration, without any request.

    `name` distinguishes the logs of its workers. With `cold`, the worker does not use compiled code of earlier
    processes, as in a user's first run.
    """
    first_run = {COLD_START: "yes", **engine_spec(run.configuration).first_run_environment} if cold else {}
    environment = {**run.env_vars, **first_run, **(extra_env_vars or {})}
    log = logs / f"{run.configuration.name.replace('/', '_')}.{name}.log"
    return WorkerProcess(environment, log, run.interpreter)


Workers = dict[str, tuple[ConfigurationRun, WorkerProcess]]
"""Configuration name -> its run and its live worker."""


@contextlib.contextmanager
def start_workers(runs: Iterable[ConfigurationRun], logs: Path, name: str, *, cold: bool = False) -> Iterator[Workers]:
    """Start a process for each configuration; arguments are those of `start_worker`."""
    with contextlib.ExitStack() as stack:
        yield {
            run.configuration.name: (run, stack.enter_context(start_worker(run, logs, name, cold=cold))) for run in runs
        }


@contextlib.contextmanager
def record_failure(workers: Workers, name: str) -> Iterator[None]:
    """Record the failure of a worker in its run, and remove the worker."""
    run, worker = workers[name]
    try:
        yield
    except (ConfigurationFailed, EngineUnavailable) as error:
        run.mark_failed(error, worker.log_path)
        worker.kill()
        del workers[name]


def request_all(
    workers: Workers,
    make_request: Callable[[ConfigurationRun], Request[AnswerT]],
    on_answer: Callable[[ConfigurationRun, AnswerT], None],
    timeout: float,
) -> None:
    """Send a request to every worker, then receive the answers; a worker that fails is removed."""
    requests = {name: make_request(run) for name, (run, _) in workers.items()}
    for name, (_, worker) in workers.items():
        worker.send(requests[name])
    for name, (run, worker) in list(workers.items()):
        with record_failure(workers, name):
            on_answer(run, worker.receive(requests[name], timeout))


def start_reference(logs: Path, timeout: float, cpus: Collection[int]) -> WorkerProcess:
    """Start the float64 reference and load it; raises ConfigurationFailed if it does not respond."""
    spec = ENGINES["reference"]
    # More threads would not make NumPy's BLAS faster.
    environment = worker_environment(spec, "cpu", threads=1, cpus=cpus)
    worker = WorkerProcess(environment, logs / "reference.log")
    worker.request(calls.load(spec.factory), timeout)
    return worker


def load_request(run: ConfigurationRun) -> Request[Loaded]:
    """Return the request that imports a configuration's framework, or the user's program."""
    program = None if run.source is None else str(run.source.path)
    return calls.load(engine_spec(run.configuration).factory, program=program)


def read_engine_info(runs: Sequence[ConfigurationRun], timeout: float) -> None:
    """Read the engine info of configuration runs; a run whose engine is unavailable records the reason.

    Their workers start in parallel, and end before this returns. Each has `timeout` seconds.
    """

    active = [run for run in runs if run.is_active]
    with (
        tempfile.TemporaryDirectory(prefix="polybench-info-") as logs,
        # A cold start, because precompiling code for the cache would take a minute.
        start_workers(active, Path(logs), "info", cold=True) as workers,
    ):
        request_all(workers, load_request, ConfigurationRun.record_loaded, timeout)


def version_changes(
    saved: Iterable[tuple[Mapping[str, Any], ConfigurationRun]], timeout: float, nested: Sequence[str] = ()
) -> list[str]:
    """Describe version changes, from one of the configurations that share engine, environment, device and versions.

    `saved` has earlier versions, as in a document, and a run that may start workers; an engine that was unavailable
    has no versions. `nested` are the names of nested versions to compare.
    """
    one_of_each: dict[object, tuple[Mapping[str, Any], ConfigurationRun]] = {}
    for before, run in saved:
        configuration, versions = run.configuration, sorted(library_versions(before).items())
        key = configuration.engine, configuration.environment, configuration.device, tuple(versions)
        one_of_each[key] = before, run
    read_engine_info([run for _, run in one_of_each.values()], timeout)
    changes: list[str] = []
    for before, run in one_of_each.values():
        if run.engine_info is None:
            changes += [f"{run.configuration.name}: {run.reason}"] if before else []
            continue
        now = collect_versions(run)
        changes += list_changes(library_versions(before), library_versions(now))
        for name in nested:
            changes += list_changes(before.get(name, {}), now.get(name, {}))
    return changes


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe each changed value."""
    return [
        f"{name} was {before.get(name, 'absent')}, now {now.get(name, 'absent')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


def make_runs(plan: Plan, folder: Path, dataset: str | None = None) -> list[ConfigurationRun]:
    """Create the run of each configuration, with the environment of its workers and no measurements.

    `folder` gets links to bundled packages; it must outlive the workers. `dataset` is the one that the plan's data are.
    """
    numbers = itertools.count()

    @functools.cache
    def interpreter(python: str) -> Interpreter:
        return resolve_interpreter(python, folder / str(next(numbers)))

    planned = planned_configurations(plan, dataset or plan.workload.dataset)
    return [_make_run(plan, configuration, interpreter) for configuration in planned]


def _make_run(plan: Plan, planned: PlannedConfiguration, interpreter: Callable[[str], Interpreter]) -> ConfigurationRun:
    configuration = planned.configuration
    spec = engine_spec(configuration)
    environment = resolve_environment(configuration, spec, plan.study.env)
    try:
        variables = worker_environment(
            spec,
            configuration.device,
            plan.workload.threads,
            configuration.variants,
            plan.study.malloc,
            plan.cpus,
            environment.project,
            plan.workload_of(configuration).precision,
            configuration.replicas,
            plan.workload.pass_,
        )
        python = OWN_INTERPRETER if environment.python is None else interpreter(environment.python)
    except EngineUnavailable as error:
        run = ConfigurationRun(planned)
        run.mark_unavailable(error)
        return run
    planned = msgspec.structs.replace(
        planned,
        env_vars=variables,
        inherited_env_vars=recorded_env_vars(os.environ, variables),
        unrecorded_env_hash=unrecorded_env_hash(os.environ, variables),
    )
    return ConfigurationRun(planned, interpreter=python, source=plan.programs.get(configuration.engine))
