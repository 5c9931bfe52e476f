"""Tests of the scaling of data-parallel configurations within a study."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.render.footnotes import data_parallel_notes
from polybench.results.comparisons import SOURCE, add_comparisons, allreduce_share
from polybench.schema.metrics import METRICS
from polybench.schema.result import Communication, Result
from tests import factories


def configuration(name: str, median: float, replicas: int = 1, **changes: Any) -> Result:
    workload = msgspec.structs.replace(factories.WORKLOAD, replicas=replicas)
    result = factories.measured(name, median, workload=workload, **changes)
    result.configuration = f"{name}/{replicas}x" if replicas > 1 else name
    return result


def with_comparisons(*results: Result, **prices: float) -> list[Result]:
    add_comparisons(results, results[0].configuration, prices)
    return list(results)


def test_replicas_share_the_threads_on_the_cpu() -> None:
    one, two = with_comparisons(configuration("torch/cpu", 0.02), configuration("torch/cpu", 0.025, 2))
    assert one.scaling is not None
    assert two.scaling is not None
    assert (two.scaling.baseline, two.scaling.devices) == ("torch/cpu", 1)
    assert two.scaling.efficiency == two.scaling.speedup == pytest.approx(0.8)
    assert [METRICS["data_parallel"].text(row) for row in (one, two)] == ["1", "2"]
    assert [METRICS["parallel_efficiency"].text(row) for row in (one, two)] == ["", "80%"]
    assert [METRICS["parallel_speedup"].text(row) for row in (one, two)] == ["", "0.800x"]


def test_each_replica_has_a_gpu() -> None:
    _, four = with_comparisons(configuration("torch/cuda", 0.04), configuration("torch/cuda", 0.0125, 4))
    assert four.scaling is not None
    assert (four.scaling.devices, four.scaling.efficiency) == (4, pytest.approx(0.8))
    assert METRICS["parallel_efficiency"].interval(four) == pytest.approx((0.8, 0.8), abs=0.02)


def test_only_configurations_that_differ_in_replicas_are_compared() -> None:
    like = configuration("tf/cpu", 0.02, environment="old")
    two = configuration("tf/cpu", 0.02, 2), configuration("torch+foreach/cpu", 0.02, 2)
    other_precision = configuration("torch/cpu", 0.02, 2)
    other_precision.workload = msgspec.structs.replace(other_precision.workload, precision="bf16")
    rows = with_comparisons(configuration("torch/cpu", 0.02), like, *two, other_precision)
    assert [row.scaling for row in rows] == [None] * 5


def test_a_gpu_is_compared_with_one_replica_on_the_cpu() -> None:
    *_, on_gpu = with_comparisons(
        configuration("torch/cpu", 0.03, 2), configuration("torch/cpu", 0.02), configuration("torch/cuda", 0.001)
    )
    assert on_gpu.gpu_speedup is not None
    assert on_gpu.gpu_speedup.baseline == "torch/cpu"


def test_failed_configuration_is_not_compared() -> None:
    rows = with_comparisons(configuration("torch/cpu", 0.02, 2), configuration("torch/cpu", 0.02, status="failed"))
    assert rows[0].scaling is None


def test_two_gpus_cost_twice_as_much() -> None:
    one, two = with_comparisons(configuration("torch/cuda", 0.02), configuration("torch/cuda", 0.02, 2), cuda=3.0)
    assert one.cost is not None
    assert two.cost is not None
    assert two.cost.dollars_per_epoch == 2 * one.cost.dollars_per_epoch
    assert two.cost.relative == 2


def test_allreduce_share_is_the_difference_of_the_times() -> None:
    found = allreduce_share((0.010, 0.009))
    assert found == Communication(pytest.approx(0.001), pytest.approx(0.1), SOURCE)  # type: ignore[arg-type]
    assert allreduce_share(None) is None


def test_notes_explain_times_and_threads_of_replicas() -> None:
    rows = with_comparisons(
        configuration("torch/cpu", 0.02),
        configuration("torch/cpu", 0.02, 2, world_size=2),
        configuration("tf/cpu", 0.02, 2),
    )
    notes = data_parallel_notes(factories.study(*rows), {"parallel_efficiency"})
    assert notes == [
        "torch/cpu/2x: 2 processes with 1 thread and 64 images per batch each; times, page faults and context"
        " switches are those of rank 0, memory and allocations are totals",
        "tf/cpu/2x: 2 devices in one process share 2 threads, with 64 images per batch each",
        "parallel efficiency: images/s relative to one replica on the same threads",
    ]
    assert data_parallel_notes(factories.study(rows[0]), {"parallel_efficiency"}) == []
