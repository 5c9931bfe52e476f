"""A flux worker as a study has it: how it starts, where it runs, and that it ends while Julia computes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from polybench.core.errors import Unavailable
from polybench.core.job import COLD_START
from polybench.engines import ENGINES
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Advance, Load, Loaded, Prepare, Prepared
from polybench.wire.process import WorkerProcess
from tests import small
from tests.engines.conftest import SOON_COMPILED
from tests.measuring.test_pinning import allowed_cpus

pytestmark = pytest.mark.slow


def prepare(worker: WorkerProcess, folder: Path) -> Prepared:
    files = small.files(folder)
    try:
        worker.ask(Load(ENGINES["flux"].factory), Loaded, 240)
    except Unavailable as missing:
        pytest.skip(missing.reason)
    return worker.ask(Prepare(small.job(), str(files.weights), files.epoch, warm_up=2), Prepared, 240)


@pytest.mark.parametrize(
    ("environment", "cached", "number"),
    [({}, {"cached_code": 1.0}, signal.SIGTERM), ({COLD_START: "yes"}, {}, signal.SIGKILL)],
)
def test_it_starts_with_cached_code_or_cold_on_its_core_and_ends_while_julia_computes(
    tmp_path: Path, environment: dict[str, str], cached: dict[str, float], number: signal.Signals
) -> None:
    cpu = max(os.sched_getaffinity(0))
    environment = worker_environment(ENGINES["flux"], "cpu", 2, cpus=(cpu,)) | SOON_COMPILED | environment
    with WorkerProcess(environment, tmp_path / "log") as worker:
        detail = prepare(worker, tmp_path).startup.detail
        assert {name: detail[name] for name in detail if name == "cached_code"} == cached
        worker.send(Advance(0, 10_000_000))
        time.sleep(0.5)
        process = psutil.Process(worker.pid)
        assert process.cpu_times().user > 0
        assert allowed_cpus([worker.pid]) == {str(cpu)}  # Julia's threads, BLAS's and the collector's
        os.kill(worker.pid, number)
        worker.kill()
        assert not psutil.pid_exists(worker.pid)
