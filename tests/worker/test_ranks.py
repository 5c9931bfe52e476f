"""Ranks of data-parallel training: they handle requests together, and end together in any case."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from polybench.engines import ENGINES
from polybench.engines.job import RANKS
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.cores import usable_cpus
from polybench.protocol.allreduce_messages import AllReduceTimed, TimeAllReduce
from polybench.protocol.environment import worker_environment
from polybench.protocol.messages import (
    AllocationsCounted,
    BlockMeasured,
    CountAllocations,
    Load,
    Loaded,
    MeasureBlock,
    Prepare,
    Prepared,
    Request,
    RequestFailed,
    Response,
)
from polybench.protocol.process import WorkerProcess
from polybench.worker.handler import Worker
from polybench.worker.ranks import RankCoordinator
from tests import small_datasets

FAKE = ENGINES["fake"].factory
TIMEOUT = 20.0
"""Seconds, so that a failing test does not wait forever."""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    environment = worker_environment(ENGINES["fake"], "cpu", 2, replicas=2)
    with WorkerProcess(environment, tmp_path / "log") as process:
        process.request(Load(FAKE), Loaded, 30)
        yield process


def prepare(worker: WorkerProcess, folder: Path, *variants: str) -> None:
    files = small_datasets.files(folder)
    job = small_datasets.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", variants)
    worker.request(Prepare(job, str(files.weights), files.epoch, warmup_steps=2), Prepared, 30)


def rank(worker: WorkerProcess) -> psutil.Process:
    (other,) = psutil.Process(worker.pid).children()
    return other


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_both_ranks_handle_requests_and_memory_is_their_sum(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    measured = worker.request(MeasureBlock(5), BlockMeasured, 30)
    assert len(measured.step_times) == 5
    rank_0 = psutil.Process(worker.pid).memory_info().rss
    assert measured.peak_rss_bytes > 1.5 * rank_0
    counted = worker.request(CountAllocations(3), AllocationsCounted, 30).allocations.host
    assert counted is not None
    assert counted.count_per_step == 24  # 12 in each rank


def test_the_all_reduce_is_timed(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    seconds = worker.request(TimeAllReduce(5), AllReduceTimed, 30).seconds_per_step
    assert seconds is not None
    with_allreduce, without_allreduce = seconds
    assert without_allreduce / with_allreduce == pytest.approx(0.9, abs=0.02)


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="there is one CPU")
def test_each_rank_has_its_own_cpus(worker: WorkerProcess) -> None:
    first, second = (set(process.cpu_affinity()) for process in (psutil.Process(worker.pid), rank(worker)))
    assert first
    assert second
    assert not first & second


def test_all_ranks_end_on_request(worker: WorkerProcess) -> None:
    other = rank(worker)
    worker.close()
    assert has_ended(other)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_other_ranks_end_with_the_first(worker: WorkerProcess, number: int) -> None:
    other = rank(worker)
    os.kill(worker.pid, number)
    assert becomes_true(lambda: has_ended(other))


def test_the_error_names_a_rank_that_was_killed(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    rank(worker).kill()
    with pytest.raises(ConfigurationFailed, match=r"rank 1 of 2: the worker was killed by SIGKILL"):
        worker.request(MeasureBlock(5), BlockMeasured, TIMEOUT)


def test_no_rank_waits_for_a_dead_rank(worker: WorkerProcess, tmp_path: Path) -> None:
    """Rank 0 hangs as in an all-reduce; the reported reason is that of the other rank."""
    prepare(worker, tmp_path, "crash")
    with pytest.raises(ConfigurationFailed, match="rank 1 of 2: the worker was killed by SIGSEGV"):
        worker.request(MeasureBlock(5), BlockMeasured, TIMEOUT)


def test_a_missing_framework_is_reported_once(worker: WorkerProcess, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"^the fake framework is not installed"):
        prepare(worker, tmp_path, "unavailable")


def test_ranks_that_wait_for_a_failed_rank_are_ended(monkeypatch: Any, tmp_path: Path) -> None:
    """The reported reason is that of rank 0."""

    class Failing(Worker):
        def handle(self, request: Request) -> Response:
            return RequestFailed("it broke") if isinstance(request, MeasureBlock) else super().handle(request)

    monkeypatch.setenv(RANKS, ";")
    coordinator = RankCoordinator(Failing(), lambda response: None)
    assert isinstance(coordinator.handle(Load(FAKE)), Loaded)
    files, job = small_datasets.files(tmp_path), small_datasets.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", ("hang",))
    assert isinstance(coordinator.handle(Prepare(job, str(files.weights), files.epoch, warmup_steps=2)), Prepared)
    (other,) = (child for child in psutil.Process().children() if "polybench.worker" in child.cmdline())
    assert coordinator.handle(MeasureBlock(5)) == RequestFailed("it broke")
    assert becomes_true(lambda: has_ended(other))


def test_a_single_process_worker_starts_no_ranks(monkeypatch: Any) -> None:
    monkeypatch.delenv(RANKS, raising=False)
    worker: Any = type("Recorder", (), {"handle": lambda self, request: ("handled", request)})()
    coordinator = RankCoordinator(worker, lambda response: None)
    assert coordinator.handle(Load(FAKE)) == ("handled", Load(FAKE))
