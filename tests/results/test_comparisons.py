"""Tests of speed-ups, costs and break-even between configurations."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import msgspec
import pytest

from polybench.render import render
from polybench.results import sweep
from polybench.results.comparisons import (
    SINGLE_PROCESS,
    add_comparisons,
    compare_costs,
    compare_results,
    compare_throughput,
    correct_for_number,
)
from polybench.schema import units
from polybench.schema.metrics import METRICS
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import Allocation, Allocations, BlockCounters, Cost, Interference, NativeAllocation
from polybench.schema.result import (
    AccuracyDifference,
    BaselineComparison,
    BreakEven,
    ColdStart,
    Comparison,
    Result,
    Scope,
    Status,
    StepTimes,
    TimeToAccuracy,
    Training,
)
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import LogRatioChange
from polybench.stats.statistics import summarize_step_times
from tests.factories import WORKLOAD, measured, native_allocation, points_over_threads, study, trainings, unmeasured


def with_comparisons(*results: Result, prices: dict[str, float] | None = None) -> dict[str, Result]:
    add_comparisons(results, "torch/cpu", prices or {})
    return {result.configuration: result for result in results}


GPU_BASELINES = {
    "torch/cuda": "torch/cpu",
    "torch+cudagraph/cuda": "torch/cpu",  # this variant does not run on the CPU
    "torch@gpu/cuda": "torch@gpu/cpu",
    "torch@other/cuda": "torch/cpu",
    "torch/cuda#2": "torch/cpu",  # in tf32, which CPUs lack
    "tf/cuda": None,  # failed the parity check on the CPU
}


@pytest.mark.parametrize(("processes", "scope"), [(2, "processes"), (1, "single_process")])
def test_each_gpu_is_compared_with_the_same_engine_on_the_cpu(processes: int, scope: Scope) -> None:
    on_cpu = [measured(f"{name}/cpu", 0.02, processes=processes) for name in ("torch", "torch@gpu")]
    on_cpu.append(measured("torch/cpu#2", 0.02, processes=processes))  # the first of several repeats counts
    on_gpu = [measured(configuration, 0.001, processes=processes) for configuration in GPU_BASELINES]
    on_gpu[4].workload = msgspec.structs.replace(WORKLOAD, precision="tf32")
    unranked = measured("tf/cpu", 0.01, parity=ParityCheck("fail")), unmeasured("flux/cuda", "unavailable", "no driver")
    by_name = with_comparisons(*on_cpu, *on_gpu, *unranked)
    for configuration, baseline in GPU_BASELINES.items():
        found = by_name[configuration].gpu_speedup
        assert (found and found.baseline) == baseline
        assert found is None or (found.speedup, found.scope) == (pytest.approx(20), scope)
    assert by_name["torch/cpu"].vs_baseline == BaselineComparison("torch/cpu", 1.0, None, scope, typical_speedup=1.0)
    assert by_name["torch/cpu"].gpu_speedup is by_name["flux/cuda"].gpu_speedup is None


def test_the_speedup_includes_pauses_that_typical_steps_leave_out() -> None:
    def configuration(name: str, steps: list[float]) -> Result:
        times = [[steps] * 2] * 2
        return measured(
            name, 0.01, step_times=StepTimes("step", 1, times), step_time=summarize_step_times(times, "step")
        )

    by_name = with_comparisons(
        configuration("torch/cpu", [0.01] * 4), configuration("flux/cpu", [0.01, 0.01, 0.01, 0.03])
    )
    found = by_name["flux/cpu"].vs_baseline
    assert found is not None
    assert found.speedup == pytest.approx(0.01 / 0.015)
    assert found.ci95 == pytest.approx((0.01 / 0.015, 0.01 / 0.015))
    assert found.typical_speedup == pytest.approx(1.0)
    baseline = by_name["torch/cpu"].vs_baseline
    assert baseline is not None
    assert (baseline.speedup, baseline.typical_speedup) == (1.0, 1.0)


def test_cost_is_time_times_price_relative_to_the_baseline() -> None:
    by_name = with_comparisons(
        measured("torch/cpu", 0.02), measured("torch/cuda", 0.001), prices={"cpu": 0.24, "cuda": 3.06}
    )
    hours = 390 * 0.001 / 3600
    relative = pytest.approx(3.06 * 0.001 / (0.24 * 0.02))
    # The processes of both configurations are equally far apart.
    assert by_name["torch/cuda"].cost == Cost(pytest.approx(3.06 * hours), relative, (relative, relative))
    assert by_name["torch/cpu"].cost == Cost(pytest.approx(0.24 * 390 * 0.02 / 3600), 1.0)
    for changes in ({"caveat": "collections run off the clock"}, {"epoch_seconds": None}):
        assert with_comparisons(measured("torch/cpu", 0.02, **changes), prices={"cpu": 1.0})["torch/cpu"].cost is None
    assert with_comparisons(measured("torch/cpu", 0.02))["torch/cpu"].cost is None


def separate(*seconds: float, **changes: Any) -> Result:
    """Return a result whose processes have these step times."""
    return measured("torch/cpu", seconds[0], step_times=StepTimes("step", 1, [[[one]] for one in seconds]), **changes)


def with_interference(result: Result) -> Result:
    """Return the result with one timing block, which is affected."""
    block = BlockCounters(1.0, 1.0, 0.0, 0.0, affected=True)
    return msgspec.structs.replace(result, interference=Interference(blocks=[[block]], blocks_affected=1))


INTERFERENCE = "interference affected 1 of 1 timing blocks of torch/cpu"
# Student's 97.5 % quantile for 2 degrees of freedom, which Welch's formula gives for two pairs of processes.
T2 = 4.302653


def test_points_measured_in_turns_are_compared_pair_by_pair() -> None:
    one, two = (
        separate(0.010, 0.020),
        separate(0.020, 0.040, workload=msgspec.structs.replace(WORKLOAD, batch_size=512)),
    )
    # Four times the items take twice as long, in each pair. Unpaired, the levels deviate by a third from their mean: a
    # variance of 2 / 9.
    found = compare_throughput(one, two)
    assert (found.speedup, found.ci95) == (pytest.approx(2.0), pytest.approx((2.0, 2.0)))
    half = math.exp(T2 * math.sqrt(2) / 3)
    apart = compare_throughput(one, two, LogRatioChange(0.0, 0.0, 1.0))
    assert (apart.speedup, apart.scope) == (pytest.approx(2.0), "processes")
    assert apart.ci95 == pytest.approx((2 / half, 2 * half), rel=1e-5)
    alone = compare_throughput(separate(0.010), two, LogRatioChange(0.0, 0.0, 1.0))
    assert (alone.ci95, alone.scope) == (None, "single_process")


def test_interference_with_either_result_makes_comparisons_inconclusive() -> None:
    one, two = separate(0.010, 0.011), separate(0.020, 0.022)
    for baseline, other in ((one, with_interference(two)), (with_interference(one), two)):
        assert compare_results(baseline, other).inconclusive_reason == INTERFERENCE
        assert compare_throughput(baseline, other).inconclusive_reason == INTERFERENCE
        assert compare_costs(baseline, other, 1.0, 2.0).inconclusive_reason == INTERFERENCE


def test_every_ratio_across_memory_groups_is_marked_in_its_row() -> None:
    on_cpu = measured("torch/cpu", 0.02)
    results = [on_cpu, *(measured(name, 0.01) for name in ("tf/cpu", "torch/cuda", "tf/cuda"))]
    several = msgspec.structs.replace(WORKLOAD, replicas=2)
    results.append(msgspec.structs.replace(measured("torch/cpu#2", 0.01), workload=several))
    groups = [["torch/cpu", "tf/cuda"], ["tf/cpu", "torch/cuda", "torch/cpu#2"]]
    add_comparisons(results, "torch/cpu", {"cpu": 1.0, "cuda": 2.0}, groups)
    marked = {
        (result.configuration, metric.name)
        for result in results
        for metric in METRICS.values()
        if metric.text(result).endswith(" *")
    }
    across = {"speedup", "typical_speedup", "relative_cost"}
    assert marked == {
        *(("tf/cpu", name) for name in across),
        *(("torch/cuda", name) for name in (*across, "gpu_speedup")),
        ("tf/cuda", "gpu_speedup"),
        *(("torch/cpu#2", name) for name in (*across, "parallel_speedup", "parallel_efficiency")),
    }
    for result in results:
        document = study(on_cpu, result) if result is not on_cpu else study(on_cpu)
        has_note = "* not measured side by side" in render(document, "table")
        assert has_note is any(name == result.configuration for name, _ in marked)
    add_comparisons(results, "torch/cpu", {"cpu": 1.0}, [[result.configuration for result in results]])
    assert not any(metric.text(result).endswith(" *") for result in results for metric in METRICS.values())


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        # Relative to their means, processes of both deviate by -1/3 and 1/3, so the ratio of pairs has no error. The
        # costs' ratio need not be that of the times: prices may differ.
        (separate(0.01, 0.02), separate(0.02, 0.04), Cost(6.0, 3.0, (3.0, 3.0))),
        (separate(0.01), separate(0.02), Cost(6.0, 3.0, None, SINGLE_PROCESS)),
        (with_interference(separate(0.01)), separate(0.02), Cost(6.0, 3.0, None, INTERFERENCE)),
        (separate(0.01, 0.02), separate(0.02), Cost(6.0, 3.0, None, SINGLE_PROCESS)),
        (
            separate(0.01, 0.02),
            separate(0.02, 0.04, trainings=trainings(0.5)),
            Cost(6.0, 3.0, None, "only one of both was trained for whole epochs"),
        ),
        (
            with_interference(separate(0.01, trainings=trainings(0.5))),
            separate(0.02),
            Cost(6.0, 3.0, None, INTERFERENCE),
        ),
        (
            separate(0.01, 0.03, trainings=trainings(0.5, 0.6)),  # which take as long as the others'
            separate(0.02, 0.01, trainings=trainings(0.5, 0.6)),
            Cost(6.0, 3.0, (3.0, 3.0)),
        ),
    ],
    ids=["pairs", "single", "single, affected", "one pair", "one trained", "one trained, affected", "both trained"],
)
def test_the_interval_of_a_relative_cost_is_that_of_the_times(one: Result, two: Result, expected: Cost) -> None:
    found = compare_costs(one, two, 2.0, 6.0)
    assert msgspec.structs.replace(found, ci95=found.ci95 and pytest.approx(found.ci95)) == expected


def test_costs_of_separate_studies_have_an_unpaired_interval() -> None:
    found = compare_costs(separate(0.01, 0.03), separate(0.02, 0.06), 2.0, 6.0, LogRatioChange(0.0, 0.0, 1.0))
    # Deviations -1/2 and 1/2 of both: variance 1/2, of the mean 1/4, of the difference of means 1/2.
    half = math.exp(T2 / math.sqrt(2))
    assert found == Cost(6.0, 3.0, pytest.approx((3 / half, 3 * half), rel=1e-5))
    assert compare_costs(separate(0.01), separate(0.02), None, 6.0) == Cost(6.0, None)


def test_p_values_are_corrected_for_all_sentences_of_a_table() -> None:
    """Holm: the smallest of three times 3, the next one times 2; a comparison without a p-value does not count."""
    compared = [Comparison("torch/cpu", 2.0, None, "processes", None, p) for p in (0.03, None, 0.01, 0.04)]
    corrected = correct_for_number([*compared, None])
    assert [one and one.p_value for one in corrected] == [
        pytest.approx(0.06),
        None,
        pytest.approx(0.03),
        pytest.approx(0.06),
        None,
    ]

    # A ratio of e^0.2 whose pairs deviate by -0.1 and 0.1, so t = 2 with one degree of freedom: p = 1 - 2 atan(2) / pi.
    def slower(name: str, **changes: Any) -> Result:
        steps = [[[math.exp(-0.2) * (1 + deviation)]] for deviation in (0.1, -0.1)]
        return measured(name, 0.01, step_times=StepTimes("step", 1, steps), **changes)

    baseline = measured("torch/cpu", 1.0, step_times=StepTimes("step", 1, [[[1.0]], [[1.0]]]))
    by_name = with_comparisons(
        baseline, slower("tf/cpu"), slower("jax/cpu"), slower("flux+gc_off/cpu", caveat="no collections")
    )
    p_value = 1 - 2 * math.atan(2) / math.pi
    for name, times in (("tf/cpu", 2), ("jax/cpu", 2), ("flux+gc_off/cpu", 1)):  # in no sentence, so not corrected
        found = by_name[name].vs_baseline
        assert found is not None
        assert found.p_value == pytest.approx(times * p_value)


def test_only_native_bytes_are_compared_with_the_baseline() -> None:
    host = Allocation(1, 2, "profiler", "tensors")
    by_name = with_comparisons(
        measured("torch/cpu", 0.02, allocations=Allocations(host, None, native_allocation(2 << 20))),
        measured("tf/cpu", 0.01, allocations=Allocations(host, None, native_allocation(5 << 20))),
        measured("flux/cpu", 0.03, allocations=Allocations(host)),
        measured(
            "tf+xla/cpu", 0.01, parity=ParityCheck("fail"), allocations=Allocations(native=native_allocation(1 << 20))
        ),
    )
    assert by_name["torch/cpu"].allocations.native == native_allocation(2 << 20, 1.0)
    assert by_name["tf/cpu"].allocations == Allocations(host, None, native_allocation(5 << 20, 2.5))
    assert by_name["flux/cpu"].allocations == Allocations(host)
    assert by_name["tf+xla/cpu"].allocations.native == native_allocation(1 << 20)


@pytest.mark.parametrize("reference", [None, native_allocation(0)])
def test_ratio_of_native_bytes_requires_native_bytes_of_the_baseline(reference: NativeAllocation | None) -> None:
    by_name = with_comparisons(
        measured("torch/cpu", 0.02, allocations=Allocations(native=reference)),
        measured("tf/cpu", 0.01, allocations=Allocations(native=native_allocation(5 << 20))),
    )
    assert by_name["tf/cpu"].allocations.native == native_allocation(5 << 20)


@pytest.mark.parametrize("unranked", [{}, {"parity": ParityCheck("fail")}, {"status": "failed"}])
def test_break_even_is_computed_for_every_other_ranked_result(unranked: dict[str, Any]) -> None:
    by_name = with_comparisons(
        measured("torch/cpu", 0.02), measured("tf/cpu", 0.01, **unranked), measured("flux/cpu", 0.03)
    )
    ranked = ["torch/cpu"] if unranked else ["torch/cpu", "tf/cpu"]
    assert [one.baseline for one in by_name["flux/cpu"].break_even_steps] == ranked
    assert [one.baseline for one in by_name["tf/cpu"].break_even_steps] == (
        [] if unranked else ["torch/cpu", "flux/cpu"]
    )


def test_a_later_start_is_repaid_by_shorter_steps() -> None:
    late = ColdStart(0.0, 10.0, 0.0, 0.0, 0.0, 0.0)
    by_name = with_comparisons(
        measured("torch/cpu", 0.5, startup=ColdStart(0.0, 2.1, 0.0, 0.0, 0.0, 0.0)),
        measured("tf/cpu", 0.375, startup=late),
        measured("jax/cpu", 0.25, startup=None),
        measured("flux/cpu", 0.75, startup=late),
    )
    # 7.9 s behind, of which a mean step repays 1/8 s; a start ends with its first step.
    assert by_name["tf/cpu"].break_even_steps == [BreakEven("torch/cpu", 65), BreakEven("flux/cpu", 0)]
    assert by_name["torch/cpu"].break_even_steps == [BreakEven("tf/cpu", 0), BreakEven("flux/cpu", 0)]
    assert by_name["flux/cpu"].break_even_steps == [BreakEven("torch/cpu", None), BreakEven("tf/cpu", 0)]
    assert by_name["jax/cpu"].break_even_steps == []


def test_accuracies_are_compared_seed_by_seed() -> None:
    by_name = with_comparisons(
        measured("torch/cpu", 0.02, trainings=trainings(0.50, 0.60, 0.55)),
        measured("tf/cpu", 0.01, trainings=trainings(0.52, 0.61, 0.58)),
    )
    assert by_name["torch/cpu"].accuracy_difference is None
    found = by_name["tf/cpu"].accuracy_difference
    assert found is not None
    assert (found.baseline, found.epochs, found.seeds) == ("torch/cpu", 2, 3)
    assert found.value == pytest.approx(0.02)
    # t(0.975, 2 degrees of freedom) = 4.3027, times the differences' standard deviation 0.01 / sqrt(3)
    assert found.ci95 == pytest.approx((0.02 - 0.024841, 0.02 + 0.024841), abs=1e-6)
    # Student's two-sided p for t = 2 sqrt(3); Holm leaves the larger of two unchanged.
    assert found.p_value == pytest.approx(0.074180, abs=1e-6)


def test_unfinished_trainings_are_not_compared() -> None:
    def with_last_unfinished(*accuracies: float) -> list[Training]:
        *complete, last = trainings(*accuracies, epochs=1)
        return [*complete, msgspec.structs.replace(last, complete=False)]

    by_name = with_comparisons(
        measured("torch/cpu", 0.02, trainings=with_last_unfinished(0.5, 0.1)),
        measured("tf/cpu", 0.01, trainings=with_last_unfinished(0.75, 0.7)),
    )
    assert by_name["tf/cpu"].accuracy_difference == AccuracyDifference("torch/cpu", 0.25, None, 1, 1)


REACHED = TimeToAccuracy(0.5, 2.0, 2, 2)


@pytest.mark.parametrize(
    ("reference", "other"),
    [
        ({}, {"parity": ParityCheck("fail")}),
        ({}, {"trainings": trainings(0.5)}),  # fewer seeds, because it was interrupted
        ({}, {"trainings": trainings(0.5, 0.6, epochs=1)}),
        ({}, {"trainings": []}),
        ({}, {"trainings": trainings(None, None)}),
        ({"time_to_accuracy": REACHED}, {"time_to_accuracy": REACHED}),
    ],
    ids=["not ranked", "fewer seeds", "fewer epochs", "not trained", "not evaluated", "target accuracy"],
)
def test_only_equal_trainings_are_compared(reference: dict[str, Any], other: dict[str, Any]) -> None:
    both = {"trainings": trainings(0.5, 0.6)}
    by_name = with_comparisons(
        measured("torch/cpu", 0.02, **both | reference), measured("tf/cpu", 0.01, **both | other)
    )
    assert by_name["tf/cpu"].accuracy_difference is None


def test_comparisons_of_studies_ignore_affected_rounds() -> None:
    """Make one of three rounds affected and ten times as slow: sweep and overhead use the other two."""

    def at(batch_size: int, seconds: float) -> Result:
        steps = [[[seconds], [10 * seconds], [seconds]] for _ in range(3)]
        block = BlockCounters(1.0, 1.0, 0.0, 0.0)
        blocks = [[block, msgspec.structs.replace(block, affected=True), block]] * 3
        return measured(
            "fake/cpu",
            seconds,
            workload=msgspec.structs.replace(WORKLOAD, batch_size=batch_size),
            step_times=StepTimes("step", 1, steps),
            interference=Interference(blocks=blocks, blocks_affected=3),
        )

    sizes = {16: study(at(16, 0.002)), 64: study(at(64, 0.005))}
    points = [({"batch_size": size}, document) for size, document in sizes.items()]
    _, second = sweep.build_sweep_document({"batch_size": list(sizes)}, points, [], 2).points
    assert second.configurations[0].speedup == pytest.approx(64 * 0.002 / (16 * 0.005))
    (engine,) = sweep.build_overhead_document(sizes, []).configurations
    assert engine.overhead_seconds == pytest.approx(0.001)
    assert engine.seconds_per_item == pytest.approx(0.003 / 48)


def test_a_sweep_over_threads_has_an_efficiency_and_a_knee() -> None:
    """The knee is the smallest value with 90 % of the highest throughput; efficiency is the speedup by the threads."""

    def at(threads: int, seconds: float) -> StudyDocument:
        workload = msgspec.structs.replace(WORKLOAD, threads=threads)
        return study(measured("torch/cpu", seconds, workload=workload))

    times = {1: 0.030, 2: 0.016, 4: 0.0105, 8: 0.010}
    points = [({"threads": threads}, at(threads, seconds)) for threads, seconds in times.items()]
    document = sweep.build_sweep_document({"threads": list(times)}, points, [], 8)
    found = [point.configurations[0].efficiency for point in document.points]
    assert found == pytest.approx([0.030 / seconds / threads for threads, seconds in times.items()])
    (curve,) = document.curves
    assert (curve.best, curve.knee) == ({"threads": 8}, 4)
    first, *others = [point.configurations[0] for point in document.points]
    assert (first.speedup, first.ci95) == (1.0, None)
    assert all(one.ci95 is not None for one in others)


@pytest.mark.parametrize("usable", [1, 2, 3])
def test_more_threads_than_the_usable_ones_oversubscribe_the_machine(usable: int) -> None:
    document = sweep.build_sweep_document({"threads": [1, 2, 4]}, points_over_threads(), [], usable)
    threads = (1, 2, 4)
    assert [point.oversubscribed for point in document.points] == [one > usable for one in threads]


def test_a_point_with_fewer_processes_than_the_best_one_has_their_degrees_of_freedom() -> None:
    """Two processes leave one, with which the interval excludes 1, but not after the correction for three pairs."""
    processes = (0.0200, 0.0201, 0.0199, 0.0202, 0.0198)
    levels = {1: processes, 2: (0.0208, 0.02098), 4: tuple(2 * one for one in processes)}
    points = []
    for threads, seconds in levels.items():
        times = [[[one]] for one in seconds]
        row = {"step_times": StepTimes("step", 1, times), "step_time": summarize_step_times(times, "step")}
        points.append(({"threads": threads}, study(measured("torch/cpu", fmean(seconds), **row))))
    (curve,) = sweep.build_sweep_document({"threads": [*levels]}, points, [], 8).curves
    assert (curve.best, curve.as_good) == ({"threads": 1}, [{"threads": 2}])


@pytest.mark.parametrize(("calls", "expected"), [([4e-6, 2e-6, 3e-6], 3e-6), ([None, 2e-6, None], 2e-6)])
def test_overhead_reports_the_python_call_overhead(calls: list[float | None], expected: float) -> None:
    def at(batch_size: int, call: float | None) -> StudyDocument:
        workload = msgspec.structs.replace(WORKLOAD, batch_size=batch_size)
        return study(measured("flux/cpu", 0.001 * batch_size, workload=workload, python_call_overhead_seconds=call))

    sizes = {size: at(size, call) for size, call in zip((1, 2, 4), calls, strict=True)}
    found = sweep.build_overhead_document(sizes, [])
    assert found.configurations[0].python_call_overhead_seconds == pytest.approx(expected)
    text = render(found, "table")
    assert text.splitlines()[2].endswith("Python")
    assert units.format_seconds(expected) in text
    assert "the bridge to Julia" in " ".join(text.split())


def test_overhead_interrupted_at_any_size_is_interrupted() -> None:
    def at(batch_size: int, status: Status) -> StudyDocument:
        workload = msgspec.structs.replace(WORKLOAD, batch_size=batch_size)
        return study(measured("flux/cpu", 0.001 * batch_size, workload=workload, status=status))

    sizes = {8: at(8, "ok"), 16: at(16, "interrupted"), 32: at(32, "ok")}
    assert sweep.build_overhead_document(sizes, []).configurations[0].status == "interrupted"


def test_costs_of_a_sweep_are_relative_to_the_most_frequent_baseline() -> None:
    """The requested baseline failed at the first point, and the second point has no measurements."""

    def at(baseline: str | None, *results: Result) -> StudyDocument:
        document = study(*results)
        return msgspec.structs.replace(document, settings=msgspec.structs.replace(document.settings, baseline=baseline))

    broken = unmeasured("torch/cpu", "failed", "crashed")
    torch, tf = (measured(configuration, 0.01, epoch_seconds=4.0) for configuration in ("torch/cpu", "tf/cpu"))
    studies = [at("tf/cpu", broken, tf), at(None, broken), at("torch/cpu", torch, tf), at("torch/cpu", torch)]
    points = [({"threads": threads}, document) for threads, document in enumerate(studies, 1)]
    reference = sweep.build_sweep_document({"threads": [1, 2, 3, 4]}, points, [], 8).reference
    assert reference is not None
    assert (reference.configuration, reference.parameters) == ("torch/cpu", {"threads": 3})
    nothing = sweep.build_sweep_document({"threads": [1]}, [({"threads": 1}, at(None, broken))], [], 8)
    assert nothing.reference is None


@pytest.mark.parametrize(
    ("interval", "scope", "reason", "expected"),
    [
        ((1.01, 1.2), "processes", None, True),
        ((0.8, 0.99), "processes", None, True),
        ((0.9, 1.1), "processes", None, False),
        ((1.01, 1.2), "processes", "interference", None),
        ((1.01, 1.2), "single_process", None, None),
        (None, "processes", None, None),
    ],
)
def test_a_comparison_is_significant_if_its_interval_excludes_1(
    interval: tuple[float, float] | None, scope: Scope, reason: str | None, expected: bool | None
) -> None:
    assert Comparison("torch/cpu", 1.0, interval, scope, reason).is_significant is expected
