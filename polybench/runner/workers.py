"""Starts the workers of a study, each in its Python environment."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from polybench.engines import ENGINES
from polybench.engines.job import COLD_START
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.planning.environments import EnvironmentSpec, resolve_environment
from polybench.planning.plan import Plan, engine_spec
from polybench.protocol import calls
from polybench.protocol.calls import Loaded, Request
from polybench.protocol.environment import worker_environment
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter, resolve_interpreter
from polybench.protocol.process import WorkerProcess
from polybench.results.run_state import ConfigurationRun
from polybench.schema.options import Configuration


def start_worker(run: ConfigurationRun, logs: Path, name: str, *, cold: bool = False) -> WorkerProcess:
    """Start a process for a configuration, without any request.

    Args:
        run: of the configuration, with the environment variables.
        logs: the study's folder of logs.
        name: distinguishes the logs of the configuration's workers.
        cold: do not use compiled code of earlier processes, as in a user's first run.
    """
    environment = run.env_vars | ({COLD_START: "yes"} if cold else {})
    log = logs / f"{run.configuration.name.replace('/', '_')}.{name}.log"
    return WorkerProcess(environment, log, run.interpreter)


def start_reference(logs: Path, timeout: float, cpus: Collection[int]) -> WorkerProcess:
    """Start the float64 reference and load it; raises ConfigurationFailed if it does not respond."""
    spec = ENGINES["reference"]
    # More threads would not make NumPy's BLAS faster.
    environment = worker_environment(spec, "cpu", threads=1, cpus=cpus)
    worker = WorkerProcess(environment, logs / "reference.log")
    worker.request(calls.load(spec.factory), timeout)
    return worker


def load_request(run: ConfigurationRun) -> Request[Loaded]:
    """Return the request that imports a configuration's framework."""
    return calls.load(engine_spec(run.configuration).factory)


def read_engine_info(runs: Sequence[ConfigurationRun], timeout: float) -> None:
    """Read the engine info of configuration runs; a run whose engine is unavailable records the reason.

    Their workers start in parallel, and end before this returns. Each has `timeout` seconds.
    """
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polybench-info-")))
        # A cold start, because precompiling code for the cache would take a minute.
        workers = [
            (run, stack.enter_context(start_worker(run, logs, "info", cold=True))) for run in runs if run.is_active
        ]
        for run, worker in workers:
            worker.send(load_request(run))
        for run, worker in workers:
            try:
                run.engine_info = worker.receive(load_request(run), timeout).info
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.mark_failed(error, worker.log_path)


class Environments:
    """Python environments and interpreters of a plan's configurations.

    Args:
        plan: with the environments.
        folder: for links to bundled packages; it must outlive the workers.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._interpreters: dict[str, Interpreter | EngineUnavailable] = {}

    def resolve(self, configuration: Configuration) -> EnvironmentSpec:
        """Return the environment of a configuration."""
        return resolve_environment(configuration, engine_spec(configuration), self._plan.study.env)

    def interpreter(self, configuration: Configuration) -> Interpreter:
        """Return the interpreter of a configuration; raises EngineUnavailable if it does not work."""
        python = self.resolve(configuration).python
        if python is None:
            return OWN_INTERPRETER
        if python not in self._interpreters:
            try:
                self._interpreters[python] = resolve_interpreter(python, self._folder / str(len(self._interpreters)))
            except EngineUnavailable as error:
                self._interpreters[python] = error
        resolved = self._interpreters[python]
        if isinstance(resolved, EngineUnavailable):
            raise resolved
        return resolved
