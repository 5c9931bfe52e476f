"""Starts the workers of a study."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from polybench.engines import ENGINES
from polybench.engines.job import COLD_START
from polybench.planning.plan import engine_spec
from polybench.protocol.environment import worker_environment
from polybench.protocol.messages import Load, Loaded
from polybench.protocol.process import WorkerProcess
from polybench.results.run_state import ConfigurationRun


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
    worker.request(Load(spec.factory), Loaded, timeout)
    return worker


def load_request(run: ConfigurationRun) -> Load:
    """Return the request that imports a configuration's framework."""
    return Load(engine_spec(run.configuration).factory)
