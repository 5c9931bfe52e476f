"""Metrics: values, texts and intervals of each column, and groups."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.schema.metrics import DEFAULT_COLUMNS, GROUPS, METRICS, Metric, _group, in_table_order, select_metrics
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import (
    Allocation,
    Allocations,
    Cost,
    Energy,
    GarbageCollection,
    Interference,
    Memory,
    NativeAllocation,
    PeakComparison,
    SizeClasses,
    Utilization,
)
from polybench.schema.result import (
    BaselineComparison,
    BreakEven,
    ColdStart,
    Communication,
    Comparison,
    Pipeline,
    Result,
    Scaling,
    StepTime,
    StepTimes,
    TimeToAccuracy,
    TimeToLoss,
)
from polybench.stats.statistics import summarize_step_times
from tests.factories import WORKLOAD, measured, native_allocation, unmeasured


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "parity"])
def test_an_unmeasured_result_has_empty_text_instead_of_zero(metric: str) -> None:
    result = unmeasured("tf/cuda", "failed", "crashed")
    assert METRICS[metric].value(result) is None
    assert METRICS[metric].text(result) == ""
    assert METRICS[metric].interval(result) is None


def test_the_baseline_is_labelled() -> None:
    assert METRICS["speedup"].text(measured("torch/cpu", 0.0165)) == "1"
    assert METRICS["speedup"].text(measured("torch/cpu#2", 0.0165)) == "1.00 (1.00 to 1.00)"


def test_a_result_without_an_interval_has_none() -> None:
    result = measured(
        "tf/cpu",
        0.01,
        step_time=StepTime(0.01, None, 0.01, 0.01, None, None, None, 1),
        vs_baseline=BaselineComparison("torch/cpu", 1.65, None, "single_process"),
    )
    assert METRICS["step_time"].text(result) == "10.0 ms"
    assert METRICS["speedup"].text(result) == "1.65 (one run)"


def test_every_source_is_a_field_of_a_result() -> None:
    for metric in METRICS.values():
        for path in (metric.source, metric.ci95):
            record: Any = Result
            for name in path.split(".") if isinstance(path, str) and path else ():
                assert hasattr(record, name), f"{metric.name}: {path}"
                field = get_type_hints(record).get(name)
                record = next(one for one in (*get_args(field), field) if one is not NoneType)


@pytest.mark.parametrize(("status", "word"), [("pass", "same"), ("fail", "DIFFERS"), ("skipped", "not checked")])
def test_parity_is_a_word(status: Any, word: str) -> None:
    assert METRICS["parity"].text(measured("tf/cpu", 0.01, parity=ParityCheck(status))) == word


def test_groups_expand_without_duplicates() -> None:
    assert set(DEFAULT_COLUMNS) <= set(METRICS)
    names = [metric.name for metric in select_metrics(["cold_start", "startup", "step_time"])]
    assert names[0] == "cold_start"
    assert names[-1] == "step_time"
    assert len(names) == len(set(names)) == len(GROUPS["startup"]) + 1
    assert [metric.name for metric in select_metrics(["all"])] == list(METRICS)
    assert [metric.name for metric in in_table_order(select_metrics(["cold_start", "step_time"]))] == [
        "step_time",
        "cold_start",
    ]
    with pytest.raises(BadInput, match=r"unknown column .*did you mean 'step_time'"):
        select_metrics(["steptime"])


def test_every_metric_reads_its_own_field() -> None:
    """Every field has a different value."""
    result = measured(
        "torch/cuda",
        0.01,
        startup=ColdStart(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        break_even_steps=[BreakEven("tf/cpu", None), BreakEven("torch/cpu", 1204)],
        allocations=Allocations(
            Allocation(73.0, 54.0 * 2**20, "a", "b"),
            Allocation(7.5, 1 << 20, "c", "d"),
            NativeAllocation(2795, 27 << 20, 18 << 20, SizeClasses(2700, 90.4, 19), "memray", "e", 0.25),
        ),
        gc=GarbageCollection(0.002, 3),
        pipeline=Pipeline(0.001, 0.009, 25_000.0, 14_000.0),
        memory=Memory(
            *(size << 20 for size in range(10, 17)),
            device_nvml_source="by process",
            growth_bytes_per_step=2048.0,
            growth_ci95=(1024.0, 3072.0),
        ),
        utilization=Utilization(187.0, 1.87, 45.5, 250, {"sm": 1380}, 61, ["thermal slowdown", "power cap"]),
        energy=Energy(4500.0, "NVML"),
        interference=Interference(0.0005, 31.0, 0.0, 5.0, 1.25),
        workload=msgspec.structs.replace(WORKLOAD, replicas=2),
        scaling=Scaling("torch/cuda#2", 1.72, (1.7, 1.74), devices=2, efficiency=0.86),
        communication=Communication(0.0013, 0.13, "difference"),
        cost=Cost(0.0034, 2.5),
        peak=PeakComparison(98e9, 0.314, "a product"),
        gpu_speedup=Comparison("torch/cpu", 97.8, (95.0, 99.0)),
        step_time=StepTime(0.01, (0.00975, 0.01025), 0.0099, 0.0098, 0.0098, 0.0102, 0.0001, 25),
        vs_baseline=BaselineComparison("torch/cpu", 1.65, (1.65, 1.65), typical_speedup=1.58),
        tokens_per_second=819_200.0,
        accuracy=0.6123,
        accuracy_std=0.0081,
        time_to_accuracy=TimeToAccuracy(0.6, 83.1, 5, 5),
        test_loss=1.88,
        test_loss_std=0.01,
        time_to_loss=TimeToLoss(1.9, 190.0, 5, 5),
    )
    expected = {
        "step_time": "10.0 ms ±2.5%",
        "throughput": "12,800",
        "tokens_per_second": "819,200",
        "steps_per_second": "100",
        "epoch_time": "3.90 s",
        "data_wait_time": "1.00 ms",
        "compute_time": "9.00 ms",
        "pipeline_throughput": "25,000",
        "training_throughput": "14,000",
        "speedup": "1.65 (1.65 to 1.65)",
        "data_parallel": "2",
        "parallel_speedup": "1.72x",
        "parallel_efficiency": "86%",
        "allreduce_share": "13%",
        "gpu_speedup": "97.8x",
        "typical_step_time": "9.90 ms",
        "typical_speedup": "1.58",
        "min_step_time": "9.80 ms",
        "median_step_time": "10.0 ms",
        "p95_step_time": "10.2 ms",
        "max_step_time": "10.2 ms",
        "accuracy": "0.612 ±0.008",
        "time_to_accuracy": "83.1 s",
        "test_loss": "1.880 ±0.010",
        "time_to_loss": "190 s",
        "alloc_bytes_per_step": "54.0 MiB",
        "allocs_per_step": "73.0",
        "device_alloc_bytes_per_step": "1.00 MiB",
        "device_allocs_per_step": "7.50",
        "native_bytes_per_step": "27.0 MiB (0.250x)",
        "native_allocs_per_step": "2,795",
        "native_bytes_vs_baseline": "0.250",
        "native_peak_live": "18.0 MiB",
        "native_allocs_lt_1kib": "2,700",
        "native_allocs_1kib_256kib": "90.4",
        "native_allocs_ge_256kib": "19.0",
        "gc_time": "2.00 ms",
        "full_gcs": "3",
        "cold_start": "15.0 s",
        "process_start_time": "1.00 s",
        "import_time": "2.00 s",
        "build_time": "3.00 s",
        "data_to_device_time": "4.00 s",
        "first_step": "5.00 s",
        "second_step": "6.00 s",
        "break_even_steps": "1,204",
        "peak_memory": "10.0 MiB",
        "memory_after_import": "11.0 MiB",
        "private_memory": "12.0 MiB",
        "file_mapped_memory": "13.0 MiB",
        "step_peak_increase": "14.0 MiB",
        "device_peak_memory": "15.0 MiB",
        "device_memory_nvml": "16.0 MiB",
        "memory_growth": "2.00 KiB (1.00 KiB to 3.00 KiB)",
        "cpu_utilization": "187%",
        "pct_of_peak": "31%",
        "gpu_utilization": "45.5%",
        "power": "250 W",
        "temperature": "61.0",
        "throttle_reasons": "thermal slowdown, power cap",
        "energy": "4,500 J",
        "page_faults": "31.0",
        "context_switches": "6.25",
        "cpu_wait_time": "500 µs",
        "cost_per_epoch": "$0.00340",
        "relative_cost": "2.50",
        "parity": "same",
    }
    assert {name: METRICS[name].text(result) for name in expected} == expected
    missing = METRICS.keys() - expected.keys()
    assert not missing, "give their fields a value in `result`, and their texts in `expected`"
    for metric in METRICS.values():
        assert (metric.text(result) == "") == (metric.value(result) is None), metric.name


@pytest.mark.parametrize(
    ("metric", "fields", "text"),
    [
        ("time_to_accuracy", {"time_to_accuracy": TimeToAccuracy(0.6, None, 1, 5)}, "not reached"),
        ("time_to_loss", {"time_to_loss": TimeToLoss(1.9, None, 1, 5)}, "not reached"),
        ("time_to_accuracy", {"time_to_loss": TimeToLoss(1.9, 190.0, 5, 5)}, ""),
        ("native_bytes_per_step", {"allocations": Allocations(native=native_allocation(1 << 20))}, "1.00 MiB"),
        ("context_switches", {"interference": Interference(None, None, None, 5.0, 1.5)}, "6.50"),
        ("context_switches", {"interference": Interference(None, None, None, 5.0, None)}, ""),
        ("context_switches", {"interference": Interference(None, None, None, None, 1.5)}, ""),
        ("data_parallel", {"workload": msgspec.structs.replace(WORKLOAD, replicas=2)}, "2"),
        ("data_parallel", {}, ""),  # a column of ones says nothing
        ("data_parallel", {"workload": msgspec.structs.replace(WORKLOAD, replicas=2), "step_time": None}, ""),
    ],
)
def test_texts_of_incomplete_measurements(metric: str, fields: dict[str, Any], text: str) -> None:
    assert METRICS[metric].text(measured("torch/cpu", 0.01, **fields)) == text


def test_means_of_blocks_are_not_the_times_of_steps() -> None:
    times = [[[0.01, 0.5], [0.02, 0.02]]]
    by_step, by_block = (
        measured("torch/cpu", 0.01, step_times=StepTimes(resolution, 3, times), step_time=summary)
        for resolution, summary in (
            ("step", summarize_step_times(times, "step")),
            ("block", summarize_step_times(times, "block")),
        )
    )
    names = GROUPS["distribution"]
    assert [METRICS[name].text(by_step) for name in names] == ["10.0 ms", "20.0 ms", "428 ms", "500 ms"]
    assert [METRICS[name].text(by_block) for name in names] == [""] * 4


def test_a_metric_inherits_from_its_name_and_its_group() -> None:
    named, own = _group(
        "times",
        Metric("step_time", "s", "step_time.median"),
        Metric("import_time", "s", "a", title="import", groups=("all times",), unavailable_hint="needs --cold"),
        unavailable_hint="needs --times",
    )
    assert (named.title, named.groups, named.unavailable_hint) == ("step time", ("times",), "needs --times")
    assert (own.title, own.groups, own.unavailable_hint) == ("import", ("times", "all times"), "needs --cold")


def test_a_cold_start_that_never_breaks_even() -> None:
    result = measured("flux/cpu", 0.03, break_even_steps=[BreakEven("torch/cpu", None)])
    assert METRICS["break_even_steps"].text(result) == "never"
    assert METRICS["break_even_steps"].value(result) is None
    assert METRICS["break_even_steps"].text(measured("flux/cpu", 0.03)) == ""
