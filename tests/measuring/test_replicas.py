"""A study of cells with several replicas: what is known of them, and what is left when one of them ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from polybench.engines.fake.engine import EXCHANGE_SHARE
from tests import small
from tests.measuring.test_faults import When, endless_study
from tests.measuring.test_study import run, small_data

__all__ = ["small_data"]


def workers() -> list[psutil.Process]:
    """Those of this process that lead others."""
    return [child for child in psutil.Process().children() if child.children()]


def test_one_and_two_are_rows_of_one_table() -> None:
    one, two = run("fake", replicas=(1, 2), threads=2, processes=1).results
    assert [one.cell, two.cell] == ["fake/cpu", "fake/cpu/2x"]
    assert (one.ranks, two.ranks, two.workload.replicas) == (1, 2, 2)
    assert two.scaling is not None
    assert two.scaling.efficiency == pytest.approx(1.0, abs=0.2)
    assert one.communication is None
    assert two.communication is not None
    assert two.communication.share == pytest.approx(EXCHANGE_SHARE, abs=0.03)


def test_an_engine_without_replicas_is_a_row_that_says_why() -> None:
    (absent,) = run("reference", replicas=2, threads=2).results
    assert (absent.cell, absent.status) == ("reference/cpu/2x", "unavailable")
    assert absent.reason == "it is what replicas are checked against"


def test_a_rank_that_dies_is_a_failed_row_and_the_others_go_on() -> None:
    document = run("fake+crash", "fake", replicas=2, threads=2, processes=1)
    crashed, other = document.results
    assert crashed.status == "failed"
    assert crashed.reason is not None
    assert crashed.reason.startswith("rank 1 of 2: the worker was killed by SIGSEGV")
    assert other.measured
    assert other.status == "ok"


def test_so_is_one_that_was_killed() -> None:
    def kill() -> None:
        (rank,) = workers()[0].children()
        rank.kill()

    document = run("fake", "fake", replicas=2, threads=2, processes=1, listener=When("round 2", kill))
    assert sorted(result.status for result in document.results) == ["failed", "ok"]
    (reason,) = (result.reason for result in document.results if result.reason)
    assert reason.startswith("rank 1 of 2: the worker was killed by SIGKILL")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_goes_on_without_the_study(number: signal.Signals, tmp_path: Path) -> None:
    images = small.cifar_folder(tmp_path, 100)
    with endless_study(images, tmp_path / "results", "--replicas", "2", "--threads", "2") as process:
        started = psutil.Process(process.pid).children(recursive=True)
        assert sum(psutil.pid_exists(one.pid) for one in started) >= 4
        os.kill(process.pid, number)
        process.communicate(timeout=60)
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
