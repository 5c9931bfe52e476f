"""Studies with data-parallel replicas: their results, and failures of single ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from polybench.engines.fake.engine import ALLREDUCE_FRACTION
from tests import small_datasets
from tests.processes import have_ended
from tests.runner.studies import CallbackOnStage, run
from tests.runner.test_failures import endless_study


def workers() -> list[psutil.Process]:
    """Return the workers of this process that have started ranks."""
    return [child for child in psutil.Process().children() if child.children()]


def test_one_and_two_replicas_are_results_of_one_study() -> None:
    single, double = run("fake", replicas=(1, 2), threads=2, processes=1).results
    assert [single.configuration, double.configuration] == ["fake/cpu", "fake/cpu/2x"]
    assert (single.world_size, double.world_size, double.workload.replicas) == (1, 2, 2)
    assert double.scaling is not None
    assert double.scaling.efficiency == pytest.approx(1.0, abs=0.2)
    assert single.communication is None
    assert double.communication is not None
    assert double.communication.fraction == pytest.approx(ALLREDUCE_FRACTION, abs=0.03)


def test_an_engine_without_replicas_is_unavailable_with_the_reason() -> None:
    (unavailable,) = run("reference", replicas=2, threads=2).results
    assert (unavailable.configuration, unavailable.status) == ("reference/cpu/2x", "unavailable")
    assert unavailable.reason == "data-parallel engines are checked against it"


def test_a_crashed_rank_fails_only_its_configuration() -> None:
    document = run("faulty+crash", "fake", replicas=2, threads=2, processes=1)
    crashed, other = document.results
    assert crashed.status == "failed"
    assert crashed.reason is not None
    assert crashed.reason.startswith("rank 1 of 2: the worker was killed by SIGSEGV")
    assert other.is_measured
    assert other.status == "ok"


def test_a_killed_rank_fails_only_its_configuration() -> None:
    def kill() -> None:
        (rank,) = workers()[0].children()
        rank.kill()

    document = run("fake", "fake", replicas=2, threads=2, processes=1, listener=CallbackOnStage("round 2", kill))
    assert sorted(result.status for result in document.results) == ["failed", "ok"]
    (reason,) = (result.reason for result in document.results if result.reason)
    assert reason.startswith("rank 1 of 2: the worker was killed by SIGKILL")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_all_ranks_end_with_the_study(number: signal.Signals, tmp_path: Path) -> None:
    images = small_datasets.cifar_folder(tmp_path, 100)
    with endless_study(images, tmp_path / "results", "--replicas", "2", "--threads", "2") as process:
        started = psutil.Process(process.pid).children(recursive=True)
        assert sum(psutil.pid_exists(one.pid) for one in started) >= 4
        os.kill(process.pid, number)
        process.communicate(timeout=60)
    assert have_ended(started)
