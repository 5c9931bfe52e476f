"""A flux worker in a study: its start, its CPU core, and its end while Julia computes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from polybench.engines import ENGINES
from polybench.engines.job import COLD_START
from polybench.errors import EngineUnavailable
from polybench.protocol import calls
from polybench.protocol.calls import Prepared
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from tests import small_datasets
from tests.engine_workers import FAST_COMPILATION
from tests.runner.test_pinning import allowed_cpus


def prepare(worker: WorkerProcess, folder: Path) -> Prepared:
    files = small_datasets.files(folder)
    try:
        worker.request(calls.load(ENGINES["flux"].factory), 240)
    except EngineUnavailable as missing:
        pytest.skip(missing.reason)
    return worker.request(calls.prepare(small_datasets.job(), str(files.weights), files.epoch, warmup_steps=2), 240)


@pytest.mark.parametrize(
    ("environment", "cached", "number"),
    [({}, {"cached_code": 1.0}, signal.SIGTERM), ({COLD_START: "yes"}, {}, signal.SIGKILL)],
)
def test_worker_starts_cached_or_cold_on_its_core_and_stops_while_julia_computes(
    tmp_path: Path, environment: dict[str, str], cached: dict[str, float], number: signal.Signals
) -> None:
    cpu = max(os.sched_getaffinity(0))
    environment = worker_environment(ENGINES["flux"], "cpu", 2, cpus=(cpu,)) | FAST_COMPILATION | environment
    with WorkerProcess(environment, tmp_path / "log") as worker:
        detail = prepare(worker, tmp_path).startup.detail
        assert {name: detail[name] for name in detail if name == "cached_code"} == cached
        worker.send(calls.run_steps(0, 10_000_000))
        time.sleep(0.5)
        process = psutil.Process(worker.pid)
        assert process.cpu_times().user > 0
        assert allowed_cpus([worker.pid]) == {str(cpu)}  # threads of Julia, BLAS and garbage collection
        os.kill(worker.pid, number)
        worker.kill()
        assert not psutil.pid_exists(worker.pid)
