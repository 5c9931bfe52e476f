"""A worker of several processes: they obey together, and end together, however one of them ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from polybench.core.errors import CellFailed, Unavailable
from polybench.core.job import RANKS
from polybench.engines import ENGINES
from polybench.machine.cores import usable_cpus
from polybench.wire.environment import worker_environment
from polybench.wire.messages import (
    Answer,
    Count,
    Counted,
    Failed,
    Load,
    Loaded,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Request,
)
from polybench.wire.process import WorkerProcess
from polybench.wire.replica_messages import ExchangeTimed, TimeExchange
from polybench.worker.handler import Worker
from polybench.worker.ranks import Leader
from tests import small

FAKE = ENGINES["fake"].factory
SOON = 20.0
"""Seconds, where a test would otherwise wait for ever."""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    environment = worker_environment(ENGINES["fake"], "cpu", 2, replicas=2)
    with WorkerProcess(environment, tmp_path / "log") as process:
        process.ask(Load(FAKE), Loaded, 30)
        yield process


def prepare(worker: WorkerProcess, folder: Path, *variants: str) -> None:
    files = small.files(folder)
    job = small.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", variants)
    worker.ask(Prepare(job, str(files.weights), files.epoch, warm_up=2), Prepared, 30)


def rank(worker: WorkerProcess) -> psutil.Process:
    (other,) = psutil.Process(worker.pid).children()
    return other


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SOON
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_both_obey_and_memory_is_of_both(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    measured = worker.ask(Measure(5), Measured, 30)
    assert len(measured.step_seconds) == 5
    own = psutil.Process(worker.pid).memory_info().rss
    assert measured.peak_rss_bytes > 1.5 * own
    counted = worker.ask(Count(3), Counted, 30).allocations.host
    assert counted is not None
    assert counted.count_per_step == 24  # of 12 in each


def test_what_the_exchange_takes(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    seconds = worker.ask(TimeExchange(5), ExchangeTimed, 30).seconds
    assert seconds is not None
    with_exchange, without = seconds
    assert without / with_exchange == pytest.approx(0.9, abs=0.02)


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="there is one CPU")
def test_each_has_cpus_of_its_own(worker: WorkerProcess) -> None:
    one, two = (set(process.cpu_affinity()) for process in (psutil.Process(worker.pid), rank(worker)))
    assert one
    assert two
    assert not one & two


def test_they_end_when_they_are_asked_to(worker: WorkerProcess) -> None:
    other = rank(worker)
    worker.close()
    assert gone(other)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_others_end_with_the_first(worker: WorkerProcess, number: int) -> None:
    other = rank(worker)
    os.kill(worker.pid, number)
    assert soon(lambda: gone(other))


def test_a_rank_that_was_killed_is_named(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    rank(worker).kill()
    with pytest.raises(CellFailed, match=r"rank 1 of 2: the worker was killed by SIGKILL"):
        worker.ask(Measure(5), Measured, SOON)


def test_nobody_waits_for_a_rank_that_is_dead(worker: WorkerProcess, tmp_path: Path) -> None:
    """The first one hangs, as in an exchange; the reason is the other's."""
    prepare(worker, tmp_path, "crash")
    with pytest.raises(CellFailed, match="rank 1 of 2: the worker was killed by SIGSEGV"):
        worker.ask(Measure(5), Measured, SOON)


def test_what_is_missing_is_said_once(worker: WorkerProcess, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^the fake framework is not installed"):
        prepare(worker, tmp_path, "unavailable")


def test_who_waits_for_the_first_one_is_ended(monkeypatch: Any, tmp_path: Path) -> None:
    """And the reason is the first one's."""

    class Failing(Worker):
        def answer(self, request: Request) -> Answer:
            return Failed("it broke") if isinstance(request, Measure) else super().answer(request)

    monkeypatch.setenv(RANKS, ";")
    leader = Leader(Failing(), lambda answer: None)
    assert isinstance(leader.answer(Load(FAKE)), Loaded)
    files, job = small.files(tmp_path), small.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", ("hang",))
    assert isinstance(leader.answer(Prepare(job, str(files.weights), files.epoch, warm_up=2)), Prepared)
    (other,) = (child for child in psutil.Process().children() if "polybench.worker" in child.cmdline())
    assert leader.answer(Measure(5)) == Failed("it broke")
    assert soon(lambda: gone(other))


def test_a_worker_alone_starts_nobody(monkeypatch: Any) -> None:
    monkeypatch.delenv(RANKS, raising=False)
    given: Any = type("Recorder", (), {"answer": lambda self, request: ("answered", request)})()
    leader = Leader(given, lambda answer: None)
    assert leader.answer(Load(FAKE)) == ("answered", Load(FAKE))
