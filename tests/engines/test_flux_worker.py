"""A flux worker as a study has it: how it starts, and that it can be ended while Julia computes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.engines.base import COLD_START
from polybench.launcher import WorkerProcess, worker_environment
from polybench.messages import Advance, Load, Loaded, Prepare, Prepared
from tests import small

pytestmark = pytest.mark.slow


def prepare(worker: WorkerProcess, folder: Path) -> Prepared:
    files = small.files(folder)
    try:
        assert isinstance(worker.ask(Load(ENGINES["flux"].factory), 240), Loaded)
    except Unavailable as lacking:
        pytest.skip(lacking.reason)
    answer = worker.ask(Prepare(small.job(), str(files.weights), files.epoch, warm_up=2), 240)
    assert isinstance(answer, Prepared)
    return answer


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess(worker_environment(ENGINES["flux"], "cpu", 2), tmp_path / "log") as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_while_julia_computes(worker: WorkerProcess, tmp_path: Path, number: signal.Signals) -> None:
    prepare(worker, tmp_path)
    worker.send(Advance(0, 10_000_000))
    time.sleep(0.5)
    process = psutil.Process(worker.pid)
    assert process.cpu_times().user > 0
    os.kill(worker.pid, number)
    worker.kill()
    assert not psutil.pid_exists(worker.pid)


def test_a_cold_start_uses_no_cached_code(worker: WorkerProcess, tmp_path: Path) -> None:
    cached = prepare(worker, tmp_path).startup
    environment = worker_environment(ENGINES["flux"], "cpu", 2) | {COLD_START: "yes"}
    with WorkerProcess(environment, tmp_path / "cold.log") as fresh:
        cold = prepare(fresh, tmp_path).startup
    assert cached.detail["cached_code"] == 1
    assert "cached_code" not in cold.detail
