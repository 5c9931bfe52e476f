"""Ranks of data-parallel training: they handle requests together, and end together in any case."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from polybench.engines.job import RANKS
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.cores import usable_cpus
from polybench.protocol import calls
from polybench.protocol.calls import (
    AllocationsCounted,
    Answer,
    BlockMeasured,
    Calibrated,
    Reply,
    Request,
    RequestFailed,
)
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from polybench.schema.resources import Allocation, Allocations, Memory, MemoryInUse, NativeAllocation, SizeClasses
from polybench.worker.handler import Worker
from polybench.worker.ranks import RankCoordinator, combine_answers
from tests import small_datasets
from tests.plugin.faulty_engine import ENGINE
from tests.processes import TIMEOUT, has_ended, have_ended

FAULTY = ENGINE.factory


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    environment = worker_environment(ENGINE, "cpu", 2, replicas=2)
    with WorkerProcess(environment, tmp_path / "log") as process:
        process.request(calls.load(FAULTY), 30)
        yield process


def prepare(worker: WorkerProcess, folder: Path, *variants: str) -> None:
    files = small_datasets.files(folder)
    job = small_datasets.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", variants)
    worker.request(calls.prepare(job, str(files.weights), files.epoch, warmup_steps=2), 30)


def rank(worker: WorkerProcess) -> psutil.Process:
    (other,) = psutil.Process(worker.pid).children()
    return other


def test_both_ranks_handle_requests_and_memory_is_their_sum(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    measured = worker.request(calls.measure_block(5), 30)
    assert len(measured.step_seconds) == 5
    rank_0 = psutil.Process(worker.pid).memory_info().rss
    assert measured.peak_rss_bytes > 1.5 * rank_0
    counted = worker.request(calls.count_allocations(3), 30).allocations.host
    assert counted is not None
    assert counted.count_per_step == 24  # 12 in each rank


def test_the_all_reduce_is_timed(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    seconds = worker.request(calls.time_allreduce(5), 30)
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
    assert have_ended([other])


def test_the_error_names_a_rank_that_was_killed(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    rank(worker).kill()
    with pytest.raises(ConfigurationFailed, match=r"rank 1 of 2: the worker was killed by SIGKILL"):
        worker.request(calls.measure_block(5), TIMEOUT)


def test_no_rank_waits_for_a_dead_rank(worker: WorkerProcess, tmp_path: Path) -> None:
    """Rank 0 hangs as in an all-reduce; the reported reason is that of the other rank."""
    prepare(worker, tmp_path, "crash")
    with pytest.raises(ConfigurationFailed, match="rank 1 of 2: the worker was killed by SIGSEGV"):
        worker.request(calls.measure_block(5), TIMEOUT)


def test_a_missing_framework_is_reported_once(worker: WorkerProcess, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"^the faulty framework is not installed"):
        prepare(worker, tmp_path, "unavailable")


def test_ranks_that_wait_for_a_failed_rank_are_ended(monkeypatch: Any, tmp_path: Path) -> None:
    """The reported reason is that of rank 0."""

    class Failing(Worker):
        def handle(self, request: Request) -> Reply:
            return RequestFailed("it broke") if request.call is calls.measure_block else super().handle(request)

    monkeypatch.setenv(RANKS, ";")
    coordinator = RankCoordinator(Failing(), lambda response: None)
    assert isinstance(coordinator.handle(calls.load(FAULTY)), Answer)
    files, job = small_datasets.files(tmp_path), small_datasets.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", ("hang",))
    assert isinstance(coordinator.handle(calls.prepare(job, str(files.weights), files.epoch, warmup_steps=2)), Answer)
    (other,) = (child for child in psutil.Process().children() if "polybench.worker" in child.cmdline())
    assert coordinator.handle(calls.measure_block(5)) == RequestFailed("it broke")
    assert have_ended([other])


def test_a_single_process_worker_starts_no_ranks(monkeypatch: Any) -> None:
    monkeypatch.delenv(RANKS, raising=False)
    worker: Any = type("Recorder", (), {"handle": lambda self, request: ("handled", request)})()
    coordinator = RankCoordinator(worker, lambda response: None)
    assert coordinator.handle(calls.load(FAULTY)) == ("handled", calls.load(FAULTY))


@pytest.mark.parametrize(
    ("sent", "alone"),
    [(calls.save_training("x"), True), (calls.restore_training("x"), False), (calls.run_steps(0, 1), False)],
    ids=["saving", "restoring", "steps"],
)
def test_rank_0_alone_saves_a_training(sent: Request[Any], alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rank:
        def __init__(self) -> None:
            self.requests: list[Request[Any]] = []

        def request(self, request: Request[Any], timeout: float) -> None:
            self.requests.append(request)

        def handle(self, request: Request[Any]) -> Reply:
            return Answer(request.call.name, None)

    monkeypatch.setenv(RANKS, "0;1")
    first, other = Rank(), Rank()
    coordinator = RankCoordinator(first, lambda response: None)  # type: ignore[arg-type]
    coordinator._ranks = [other]  # type: ignore[list-item]
    assert coordinator.handle(sent) == Answer(sent.call.name, None)
    assert other.requests == ([] if alone else [sent])


def test_times_are_those_of_rank_0_and_memory_is_summed() -> None:
    combined = combine_answers([BlockMeasured([0.1, 0.2], 1, 100), BlockMeasured([9.0, 9.0], 1, 50)])
    assert combined == BlockMeasured([0.1, 0.2], 1, 150)


def test_the_memory_in_use_is_that_of_all_ranks_or_unknown() -> None:
    first, second = (Calibrated([time], MemoryInUse([0, 5], [size, 2 * size])) for time, size in ((0.1, 100), (9.0, 7)))
    assert combine_answers([first, second]) == Calibrated([0.1], MemoryInUse([0, 5], [107, 214]))
    assert combine_answers([first, Calibrated([9.0])]) == Calibrated([0.1])


def counted(peak: int, anonymous: int, file_mapped: int, count: int, size: int) -> AllocationsCounted:
    memory = Memory(peak_rss_bytes=peak, rss_anon_bytes=anonymous, rss_file_bytes=file_mapped)
    return AllocationsCounted(memory, Allocations(Allocation(count, size, "profiler", "tensors")))


def test_allocations_are_summed_and_the_data_set_counts_once() -> None:
    assert combine_answers([counted(10, 4, 6, 12, 1000), counted(11, 5, 7, 10, 900)]) == counted(21, 9, 7, 22, 1900)
    first, second = NativeAllocation(3, 30, 20, SizeClasses(1, 2, 0), "memray", "all"), SizeClasses(1, 2, 1)
    combined = combine_answers([first, NativeAllocation(4, 40, 25, second, "memray", "all")])
    assert combined == NativeAllocation(7, 70, 45, SizeClasses(2, 4, 1), "memray", "all")


def test_a_field_that_is_unknown_in_one_rank_stays_unknown() -> None:
    first = AllocationsCounted(Memory(), Allocations())
    assert combine_answers([first, AllocationsCounted(Memory(rss_file_bytes=5), Allocations())]) == first
