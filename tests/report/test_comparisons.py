"""Speed-up of a device, cost and break-even between cells."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.core import units
from polybench.core.document.identity import Parity
from polybench.core.document.resources import (
    Allocation,
    Allocations,
    BlockReading,
    Cost,
    Disturbance,
    NativeAllocation,
)
from polybench.core.document.result import Result, Status
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import BlockMeans, Samples
from polybench.core.document.training import AccuracyDifference, TimeToAccuracy, Training
from polybench.export.overhead import render
from polybench.report import overhead, sweep
from polybench.report.comparisons import relate
from tests.factories import WORKLOAD, absent, measured, native, study, trainings


def related(*results: Result, prices: dict[str, float] | None = None) -> dict[str, Result]:
    relate(results, "torch/cpu", prices or {})
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
        assert found.scope == "processes"


def test_a_device_is_compared_with_the_cpu_in_its_own_environment() -> None:
    cells = [measured(f"torch{at}/cpu", 0.02) for at in ("", "@gpu")]
    cells += [measured(f"torch{at}/cuda", 0.001) for at in ("@gpu", "@other")]
    by_name = related(*cells)
    for cell, on_cpu in (("torch@gpu/cuda", "torch@gpu/cpu"), ("torch@other/cuda", "torch/cpu")):
        found = by_name[cell].device_speedup
        assert found is not None
        assert found.cpu_cell == on_cpu


def test_one_process_gives_no_verdict_on_a_device() -> None:
    by_name = related(measured("torch/cpu", 0.02, processes=1), measured("torch/cuda", 0.001, processes=1))
    found = by_name["torch/cuda"].device_speedup
    assert found is not None
    assert found.scope == "within one run"


def test_speed_by_means_has_the_pauses_that_medians_leave_out() -> None:
    def cell(name: str, steps: list[float]) -> Result:
        means = BlockMeans(sum(steps) / len(steps), None, 128.0, 390.0)
        return measured(name, 0.01, samples=Samples("step", 1, [[steps] * 2] * 2), block_means=means)

    by_name = related(
        cell("torch/cpu", [0.01] * 4),
        cell("flux/cpu", [0.01, 0.01, 0.01, 0.03]),
        measured("tf/cpu", 0.01),  # saved before there were means
    )
    found = by_name["flux/cpu"]
    assert found.relative is not None
    assert found.block_means is not None
    assert found.relative.speedup == pytest.approx(1.0)
    assert found.block_means.speedup == pytest.approx(0.01 / 0.015)
    assert found.block_means.speedup_interval95 == pytest.approx((0.01 / 0.015, 0.01 / 0.015))
    baseline = by_name["torch/cpu"].block_means
    assert baseline is not None
    assert (baseline.speedup, baseline.speedup_interval95) == (1.0, None)
    assert by_name["tf/cpu"].block_means is None


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


def test_native_bytes_are_divided_by_the_baselines_and_no_others_are() -> None:
    own = Allocation(1, 2, "profiler", "tensors")
    by_name = related(
        measured("torch/cpu", 0.02, allocations=Allocations(own, None, native(2 << 20))),
        measured("tf/cpu", 0.01, allocations=Allocations(own, None, native(5 << 20))),
        measured("flux/cpu", 0.03, allocations=Allocations(own)),
        measured("tf+xla/cpu", 0.01, parity=Parity("fail"), allocations=Allocations(native=native(1 << 20))),
    )
    assert by_name["torch/cpu"].allocations.native == native(2 << 20, 1.0)
    assert by_name["tf/cpu"].allocations == Allocations(own, None, native(5 << 20, 2.5))
    assert by_name["flux/cpu"].allocations == Allocations(own)
    assert by_name["tf+xla/cpu"].allocations.native == native(1 << 20)


@pytest.mark.parametrize("base", [None, native(0)])
def test_without_native_bytes_of_the_baseline_there_is_no_ratio(base: NativeAllocation | None) -> None:
    by_name = related(
        measured("torch/cpu", 0.02, allocations=Allocations(native=base)),
        measured("tf/cpu", 0.01, allocations=Allocations(native=native(5 << 20))),
    )
    assert by_name["tf/cpu"].allocations.native == native(5 << 20)


def test_break_even_against_every_other_row() -> None:
    by_name = related(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01), measured("flux/cpu", 0.03))
    assert {repaid.against for repaid in by_name["tf/cpu"].break_even} == {"torch/cpu", "flux/cpu"}


@pytest.mark.parametrize(
    "unranked", [{"parity": Parity("fail")}, {"status": "failed"}], ids=["not identical", "failed"]
)
def test_no_break_even_with_a_row_that_is_not_ranked(unranked: dict[str, Any]) -> None:
    by_name = related(
        measured("torch/cpu", 0.02), measured("tf/cpu", 0.01, **unranked), measured("flux/cpu", 0.03)
    )
    assert by_name["tf/cpu"].break_even == []
    assert [repaid.against for repaid in by_name["flux/cpu"].break_even] == ["torch/cpu"]


def test_accuracies_are_compared_seed_by_seed() -> None:
    by_name = related(
        measured("torch/cpu", 0.02, trainings=trainings(0.50, 0.60, 0.55)),
        measured("tf/cpu", 0.01, trainings=trainings(0.52, 0.61, 0.58)),
    )
    assert by_name["torch/cpu"].accuracy_difference is None
    found = by_name["tf/cpu"].accuracy_difference
    assert found is not None
    assert (found.baseline, found.epochs, found.seeds) == ("torch/cpu", 2, 3)
    assert found.value == pytest.approx(0.02)
    # t(0.975, 2 degrees of freedom) = 4.3027, times the differences' standard deviation 0.01 / sqrt(3)
    assert found.interval95 == pytest.approx((0.02 - 0.024841, 0.02 + 0.024841), abs=1e-6)


def test_a_training_that_was_not_finished_is_not_compared() -> None:
    def with_last_unfinished(*accuracies: float) -> list[Training]:
        *complete, last = trainings(*accuracies, epochs=1)
        return [*complete, msgspec.structs.replace(last, complete=False)]

    by_name = related(
        measured("torch/cpu", 0.02, trainings=with_last_unfinished(0.5, 0.1)),
        measured("tf/cpu", 0.01, trainings=with_last_unfinished(0.75, 0.7)),
    )
    assert by_name["tf/cpu"].accuracy_difference == AccuracyDifference("torch/cpu", 0.25, None, 1, 1)


def test_no_interval_from_one_seed() -> None:
    by_name = related(
        measured("torch/cpu", 0.02, trainings=trainings(0.5)),
        measured("tf/cpu", 0.01, trainings=trainings(0.75)),
    )
    assert by_name["tf/cpu"].accuracy_difference == AccuracyDifference("torch/cpu", 0.25, None, 2, 1)


REACHED = TimeToAccuracy(0.5, 2.0, 2, 2)


@pytest.mark.parametrize(
    ("base", "other"),
    [
        ({}, {"parity": Parity("fail")}),
        ({}, {"trainings": trainings(0.5)}),  # of fewer seeds: interrupted
        ({}, {"trainings": trainings(0.5, 0.6, epochs=1)}),
        ({}, {"trainings": []}),
        ({}, {"trainings": trainings(None, None)}),
        ({"time_to_accuracy": REACHED}, {"time_to_accuracy": REACHED}),
    ],
    ids=["not ranked", "fewer seeds", "fewer epochs", "not trained", "not evaluated", "until an accuracy"],
)
def test_only_the_same_trainings_are_compared(base: dict[str, Any], other: dict[str, Any]) -> None:
    both = {"trainings": trainings(0.5, 0.6)}
    by_name = related(measured("torch/cpu", 0.02, **both | base), measured("tf/cpu", 0.01, **both | other))
    assert by_name["tf/cpu"].accuracy_difference is None


def test_what_compares_studies_leaves_disturbed_rounds_out() -> None:
    """One of three rounds is ten times as long and disturbed: curves and fixed costs are of the others."""

    def at(batch_size: int, seconds: float) -> Result:
        steps = [[[seconds], [10 * seconds], [seconds]] for _ in range(3)]
        block = BlockReading(1.0, 1.0, 0.0, 0.0)
        blocks = [[block, msgspec.structs.replace(block, disturbed=True), block]] * 3
        return measured(
            "fake/cpu",
            seconds,
            workload=msgspec.structs.replace(WORKLOAD, batch_size=batch_size),
            samples=Samples("step", 1, steps),
            disturbance=Disturbance(blocks=blocks, blocks_disturbed=3),
        )

    sizes = {16: study(at(16, 0.002)), 64: study(at(64, 0.005))}
    points = [({"batch_size": size}, document) for size, document in sizes.items()]
    _, second = sweep.summarize({"batch_size": list(sizes)}, points, [], 2).points
    assert second.cells[0].speedup == pytest.approx(64 * 0.002 / (16 * 0.005))
    (engine,) = overhead.summarize(sizes, []).engines
    assert engine.fixed_seconds == pytest.approx(0.001)
    assert engine.seconds_per_sample == pytest.approx(0.003 / 48)


@pytest.mark.parametrize(("calls", "expected"), [([4e-6, 2e-6, 3e-6], 3e-6), ([None, 2e-6, None], 2e-6)])
def test_a_fixed_cost_has_the_call_of_the_engine_beside_it(
    calls: list[float | None], expected: float
) -> None:
    def at(batch_size: int, call: float | None) -> StudyDocument:
        workload = msgspec.structs.replace(WORKLOAD, batch_size=batch_size)
        return study(measured("flux/cpu", 0.001 * batch_size, workload=workload, call_seconds=call))

    sizes = {size: at(size, call) for size, call in zip((1, 2, 4), calls, strict=True)}
    found = overhead.summarize(sizes, [])
    assert found.engines[0].call_seconds == pytest.approx(expected)
    text = render(found, "table")
    assert text.splitlines()[2].endswith("call")
    assert units.seconds(expected) in text
    assert "the bridge to Julia" in " ".join(text.split())


def test_a_fixed_cost_that_was_interrupted_at_any_size_says_so() -> None:
    def at(batch_size: int, status: Status) -> StudyDocument:
        workload = msgspec.structs.replace(WORKLOAD, batch_size=batch_size)
        return study(measured("flux/cpu", 0.001 * batch_size, workload=workload, status=status))

    sizes = {8: at(8, "ok"), 16: at(16, "interrupted"), 32: at(32, "ok")}
    assert overhead.summarize(sizes, []).engines[0].status == "interrupted"


def test_costs_of_a_sweep_are_relative_to_the_baseline_of_most_points() -> None:
    """The one that was asked for failed at the first point, and at the second nothing was measured."""

    def at(baseline: str | None, *results: Result) -> StudyDocument:
        document = study(*results)
        return msgspec.structs.replace(
            document, settings=msgspec.structs.replace(document.settings, baseline=baseline)
        )

    broken = absent("torch/cpu", "failed", "crashed")
    torch, tf = (measured(cell, 0.01, epoch_seconds=4.0) for cell in ("torch/cpu", "tf/cpu"))
    studies = [at("tf/cpu", broken, tf), at(None, broken), at("torch/cpu", torch, tf), at("torch/cpu", torch)]
    points = [({"threads": threads}, document) for threads, document in enumerate(studies, 1)]
    base = sweep.summarize({"threads": [1, 2, 3, 4]}, points, [], 8).base
    assert base is not None
    assert (base.cell, base.values) == ("torch/cpu", {"threads": 3})
    nothing = sweep.summarize({"threads": [1]}, [({"threads": 1}, at(None, broken))], [], 8)
    assert nothing.base is None
