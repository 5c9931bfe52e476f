"""What replicas gain against one, in one study."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.core.document.replicas import Communication
from polybench.core.document.result import Result
from polybench.export.replica_notes import replica_notes
from polybench.metrics import METRICS
from polybench.report.comparisons import relate
from polybench.report.replicas import SOURCE, communication
from polybench.wire.replica_messages import ExchangeTimed
from tests import factories


def cell(name: str, median: float, replicas: int = 1, **changes: Any) -> Result:
    workload = msgspec.structs.replace(factories.WORKLOAD, replicas=replicas)
    result = factories.measured(name, median, workload=workload, **changes)
    result.cell = f"{name}/{replicas}x" if replicas > 1 else name
    return result


def related(*results: Result, **prices: float) -> list[Result]:
    relate(results, results[0].cell, prices)
    return list(results)


def test_on_the_cpu_all_have_the_same_threads() -> None:
    one, two = related(cell("torch/cpu", 0.02), cell("torch/cpu", 0.025, 2))
    assert one.scaling is not None
    assert two.scaling is not None
    assert (two.scaling.single_cell, two.scaling.devices) == ("torch/cpu", 1)
    assert two.scaling.efficiency == two.scaling.speedup == pytest.approx(0.8)
    assert [METRICS["replicas"].text(row) for row in (one, two)] == ["1", "2"]
    assert [METRICS["efficiency"].text(row) for row in (one, two)] == ["", "80%"]
    assert [METRICS["scaling"].text(row) for row in (one, two)] == ["", "0.800x"]


def test_on_gpus_there_are_as_many_of_them() -> None:
    _, four = related(cell("torch/cuda", 0.04), cell("torch/cuda", 0.0125, 4))
    assert four.scaling is not None
    assert (four.scaling.devices, four.scaling.efficiency) == (4, pytest.approx(0.8))
    assert METRICS["efficiency"].interval(four) == pytest.approx((0.8, 0.8), abs=0.02)


def test_each_is_compared_with_its_like() -> None:
    like = cell("tf/cpu", 0.02, environment="old")
    two = cell("tf/cpu", 0.02, 2), cell("torch+foreach/cpu", 0.02, 2)
    rows = related(cell("torch/cpu", 0.02), like, *two)
    assert [row.scaling for row in rows] == [None] * 4


def test_a_failed_one_is_no_measure() -> None:
    rows = related(cell("torch/cpu", 0.02, 2), cell("torch/cpu", 0.02, status="failed"))
    assert rows[0].scaling is None


def test_two_gpus_cost_twice_as_much() -> None:
    one, two = related(cell("torch/cuda", 0.02), cell("torch/cuda", 0.02, 2), cuda=3.0)
    assert one.cost is not None
    assert two.cost is not None
    assert two.cost.dollars_per_epoch == 2 * one.cost.dollars_per_epoch
    assert two.cost.relative == 2


def test_what_is_not_exchanged_is_saved() -> None:
    found = communication(ExchangeTimed((0.010, 0.009)))
    assert found == Communication(pytest.approx(0.001), pytest.approx(0.1), SOURCE)  # type: ignore[arg-type]
    assert communication(ExchangeTimed(None)) is None
    assert communication(None) is None


def test_it_is_said_whose_times_and_threads_these_are() -> None:
    rows = related(cell("torch/cpu", 0.02), cell("torch/cpu", 0.02, 2, ranks=2), cell("tf/cpu", 0.02, 2))
    notes = replica_notes(factories.study(*rows), {"efficiency"})
    assert notes == [
        "torch/cpu/2x: 2 processes, 1 thread and 64 images of every batch each; times, faults and switches"
        " are the first one's, memory and allocations of all",
        "tf/cpu/2x: 2 devices of one process, 64 images of every batch each; they share 2 threads",
        "scaling efficiency: images/s to those of one replica, which has the same threads",
    ]
    assert replica_notes(factories.study(rows[0]), {"efficiency"}) == []
