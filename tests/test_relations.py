"""Speed-up of a device, cost and break-even between cells."""

from __future__ import annotations

import pytest

from polybench.core.results import Cost, Parity, Result, Samples
from polybench.relations import relate
from tests.factories import absent, measured


def related(*results: Result, prices: dict[str, float] | None = None) -> dict[str, Result]:
    found = {
        result.cell: result.samples.step_seconds if isinstance(result.samples, Samples) else []
        for result in results
    }
    relate(results, found, "torch/cpu", prices or {})
    return {result.cell: result for result in results}


def test_each_engine_on_cuda_against_itself_on_the_cpu() -> None:
    by_name = related(
        measured("torch/cpu", 0.02), measured("tf/cpu", 0.01), measured("torch/cuda", 0.001),
        measured("tf/cuda", 0.002), measured("torch+cudagraph/cuda", 0.0005),
    )  # fmt: skip
    assert by_name["torch/cpu"].device_speedup is None
    for cell, on_cpu, speedup in (
        ("torch/cuda", "torch/cpu", 20),
        ("tf/cuda", "tf/cpu", 5),
        ("torch+cudagraph/cuda", "torch/cpu", 40),  # this variant has no CPU
    ):
        found = by_name[cell].device_speedup
        assert found is not None
        assert found.cpu_cell == on_cpu
        assert found.speedup == pytest.approx(speedup)
        assert found.interval95 is not None


def test_no_device_speedup_without_a_ranked_row_on_the_cpu() -> None:
    by_name = related(
        measured("torch/cpu", 0.02), measured("tf/cpu", 0.01, parity=Parity("fail")),
        measured("tf/cuda", 0.001), absent("flux/cuda", "unavailable", "no NVIDIA driver"),
    )  # fmt: skip
    assert by_name["tf/cuda"].device_speedup is None
    assert by_name["flux/cuda"].device_speedup is None


def test_cost_is_time_times_price_and_relative_to_the_baseline() -> None:
    by_name = related(
        measured("torch/cpu", 0.02), measured("torch/cuda", 0.001), prices={"cpu": 0.24, "cuda": 3.06}
    )
    hours = 390 * 0.001 / 3600
    assert by_name["torch/cuda"].cost == Cost(
        pytest.approx(3.06 * hours), pytest.approx(3.06 * 0.001 / (0.24 * 0.02))
    )
    assert related(measured("torch/cpu", 0.02))["torch/cpu"].cost is None


def test_break_even_against_every_other_row() -> None:
    by_name = related(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01), measured("flux/cpu", 0.03))
    assert {repaid.against for repaid in by_name["tf/cpu"].break_even} == {"torch/cpu", "flux/cpu"}
