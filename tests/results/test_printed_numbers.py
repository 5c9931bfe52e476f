"""Every number that a study prints has a row here: its statistic and its interval, or why it has none.

A new number in the table, or in a line above or below it, fails until it has a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, geometric_mean, median
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from polybench.render import render
from polybench.schema.metrics import METRICS
from polybench.schema.result import Interval, Result
from polybench.schema.study import StudyDocument
from tests.simulated_machine import Machine, Script

IMAGES = 128
STEPS = 50_000 // IMAGES
SCRIPTS = {
    "torch": Script(0.020),
    "flux": Script(0.050, pause_interval=12, pause_seconds=0.3, startup_seconds=4.0, first_step_seconds=2.0),
    "tf": Script(0.012, startup_seconds=3.0),
}


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        statistic: what its number is.
        interval: where its interval is, or why it has none.
        value: the statistic, from the raw times; None for a quantity that is no step time.
        bounds: its interval, from the raw times.
    """

    statistic: str
    interval: str
    value: Callable[[Result, Result], float] | None = None
    bounds: Callable[[Result, Result], Interval] | None = None


class Line(NamedTuple):
    """A pattern of a line beside the table, what its numbers are, and where their intervals are."""

    pattern: str
    statistic: str
    interval: str


def process_means(result: Result) -> list[float]:
    return [fmean(seconds for steps in process for seconds in steps) for process in result.nested_step_times]


def mean_step(result: Result, _: Result) -> float:
    return fmean(process_means(result))


def mean_step_bounds(result: Result, _: Result) -> Interval:
    return student(relative_levels(result), mean_step(result, result))


def typical_step(result: Result, _: Result) -> float:
    processes = [[median(steps) for steps in process] for process in result.nested_step_times]
    return geometric_mean(map(median, processes))


def all_steps(result: Result) -> list[float]:
    return [seconds for process in result.nested_step_times for steps in process for seconds in steps]


def speedup(result: Result, baseline: Result) -> float:
    return mean_step(baseline, baseline) / mean_step(result, result)


def speedup_bounds(result: Result, baseline: Result) -> Interval:
    pairs = zip(relative_levels(baseline), relative_levels(result), strict=True)
    return student([one - other for one, other in pairs], speedup(result, baseline))


def relative_levels(result: Result) -> list[float]:
    """Return the relative deviations of the processes from their mean."""
    levels = process_means(result)
    return [level / fmean(levels) - 1 for level in levels]


def student(deviations: Sequence[float], mean: float) -> Interval:
    """Return the 95 % interval of a mean whose processes deviate by these shares."""
    half = stats.t.ppf(0.975, len(deviations) - 1) * np.std(deviations, ddof=1) / len(deviations) ** 0.5
    return mean * float(np.exp(-half)), mean * float(np.exp(half))


BESIDE = "beside it"
OF_STEP = "that of the mean step, from which it follows"
DESCRIPTION = "none: describes the steps that were timed"
START = "none: a mean over the starts, usually one"
COUNTED = "none: counted, not sampled"
LARGEST = "none: the largest of all processes"
MACHINE = "none: describes the machine while steps were timed"
PART = "none: a part of the mean step"
STAGE = "none: of one stage alone, to name the slower one"
ONE_TRAINING = "none: of one training a seed"

COLUMNS = {
    "step_time": Column("mean step", BESIDE, mean_step, mean_step_bounds),
    "throughput": Column("images/s of the mean step", OF_STEP, lambda *pair: IMAGES / mean_step(*pair)),
    "tokens_per_second": Column("tokens/s of the mean step", OF_STEP),
    "steps_per_second": Column("inverse of the mean step", OF_STEP, lambda *pair: 1 / mean_step(*pair)),
    "epoch_time": Column("mean step x steps of an epoch", OF_STEP, lambda *pair: STEPS * mean_step(*pair)),
    "data_wait_time": Column("mean seconds in which a step waits for its batch", PART),
    "compute_time": Column("mean seconds of the rest of the step", PART),
    "pipeline_throughput": Column("images/s of the pipeline", STAGE),
    "training_throughput": Column("images/s of the training", STAGE),
    "speedup": Column("ratio of mean steps", BESIDE, speedup, speedup_bounds),
    "gpu_speedup": Column("ratio of mean steps", BESIDE),
    "data_parallel": Column("replicas", COUNTED),
    "parallel_speedup": Column("ratio of mean steps", BESIDE),
    "parallel_efficiency": Column("ratio of mean steps, divided by the devices", BESIDE),
    "allreduce_share": Column("relative difference of two mean steps", PART),
    "typical_step_time": Column("mean over processes of medians of rounds", DESCRIPTION, typical_step),
    "typical_speedup": Column(
        "ratio of typical steps", DESCRIPTION, lambda one, other: typical_step(other, other) / typical_step(one, one)
    ),
    "min_step_time": Column("shortest step", DESCRIPTION, lambda result, _: min(all_steps(result))),
    "median_step_time": Column("median of all steps", DESCRIPTION, lambda result, _: median(all_steps(result))),
    "p95_step_time": Column(
        "95th percentile of all steps", DESCRIPTION, lambda result, _: float(np.percentile(all_steps(result), 95))
    ),
    "max_step_time": Column("longest step", DESCRIPTION, lambda result, _: max(all_steps(result))),
    "accuracy": Column("mean over seeds", "none: their standard deviation is beside it"),
    "time_to_accuracy": Column("seconds until the target", ONE_TRAINING),
    "test_loss": Column("mean over seeds", "none: their standard deviation is beside it"),
    "time_to_loss": Column("seconds until the target", ONE_TRAINING),
    "alloc_bytes_per_step": Column("mean of the counted steps", COUNTED),
    "allocs_per_step": Column("mean of the counted steps", COUNTED),
    "device_alloc_bytes_per_step": Column("mean of the counted steps", COUNTED),
    "device_allocs_per_step": Column("mean of the counted steps", COUNTED),
    "native_bytes_per_step": Column("mean of the counted steps", COUNTED),
    "native_allocs_per_step": Column("mean of the counted steps", COUNTED),
    "native_bytes_vs_baseline": Column("ratio of means of the counted steps", COUNTED),
    "native_peak_live": Column("most bytes in use", COUNTED),
    "native_allocs_lt_1kib": Column("mean of the counted steps", COUNTED),
    "native_allocs_1kib_256kib": Column("mean of the counted steps", COUNTED),
    "native_allocs_ge_256kib": Column("mean of the counted steps", COUNTED),
    "gc_time": Column("mean seconds of the collector in a step", PART),
    "full_gcs": Column("full collections in all timed steps", COUNTED),
    "cold_start": Column("mean seconds until the end of the first step", BESIDE),
    "process_start_time": Column("a part of the start", START),
    "import_time": Column("a part of the start", START),
    "build_time": Column("a part of the start", START),
    "data_to_device_time": Column("a part of the start", START),
    "first_step": Column("seconds", START),
    "second_step": Column("seconds", START),
    "break_even_steps": Column("steps after which two starts and trainings take the same time", START),
    "peak_memory": Column("bytes", LARGEST),
    "memory_after_import": Column("bytes", LARGEST),
    "private_memory": Column("bytes", LARGEST),
    "file_mapped_memory": Column("bytes", LARGEST),
    "step_peak_increase": Column("bytes", LARGEST),
    "device_peak_memory": Column("bytes", LARGEST),
    "device_memory_nvml": Column("bytes", LARGEST),
    "memory_growth": Column("mean over processes of median bytes per step", BESIDE),
    "cpu_utilization": Column("mean", MACHINE),
    "gpu_utilization": Column("mean", MACHINE),
    "power": Column("mean", MACHINE),
    "temperature": Column("highest", MACHINE),
    "throttle_reasons": Column("words", MACHINE),
    "energy": Column("joules of the timed steps, for an epoch", MACHINE),
    "page_faults": Column("mean of all timed steps", COUNTED),
    "context_switches": Column("mean of all timed steps", COUNTED),
    "cpu_wait_time": Column("mean of all timed steps", MACHINE),
    "cost_per_epoch": Column("price x mean step x steps of an epoch", OF_STEP),
    "relative_cost": Column("ratio of prices x ratio of mean steps", BESIDE),
    "pct_of_peak": Column("FLOP/s of the mean step", OF_STEP),
    "parity": Column("a word", "none"),
}

TIME = r"[\d.]+ (?:s|ms|µs)"
NUMBER = r"[\d.,]+"
SETTING = "none: a setting"
LINES = (
    Line(rf"lenet on .*, batch {IMAGES}, fp32, 2 threads; Intel Xeon, 2 cores; [\d-]+", "workload and day", SETTING),
    Line(rf"\w+ is {NUMBER} \({NUMBER} to {NUMBER}\) times as fast as \w+\.", "ratio of mean steps", BESIDE),
    Line(r"NO RESULT( for [\w, ]+)?: .* --wait-idle 60s", "a command", SETTING),
    Line(r"Cannot tell: only one process, .* --processes 5\.", "a command", SETTING),
    Line(rf"A step of \w+ takes {TIME} \({TIME} to {TIME}\)\.", "mean step", BESIDE),
    Line(r"Brackets: 95% intervals over \d+ runs, .*", "process runs", COUNTED),
    Line(rf"\w+ collects garbage for {NUMBER} of {TIME}; a step without it takes {TIME}", "mean step", DESCRIPTION),
    Line(rf"lenet \({NUMBER} parameters\) on .*, batch {IMAGES}, .*, seed \d+", "workload", SETTING),
    Line(r"\d process(es)? x (\d+ to )?\d+ rounds? x \d+ steps(; baseline .*)?", "process runs", COUNTED),
    Line(rf".*: \d+ full garbage collections? in {NUMBER} .* rarer than one in {NUMBER} are .*", "pauses", COUNTED),
    Line(r"the budget of \d+ s ended before all rounds were measured; .*", "budget", SETTING),
    Line(r"CPU contention: \d+ of \d+ timing blocks .*", "timing blocks", COUNTED),
    Line(r"more runnable threads than cores: .* 30 times as long; .*", "a limit", SETTING),
    Line(r"waited \d+ s for an idle machine", "seconds", COUNTED),
    Line(r"margin of error of speedups above ±5%: .* ±[\d.]+%; try --processes \d+ .*", "half width", "it is one"),
    Line(r"(Why: polybench explain ID   )?\d+ notes?: polybench show ID --notes", "notes", COUNTED),
)


@pytest.fixture(scope="module")
def quiet() -> StudyDocument:
    return Machine(seed=3).measure(SCRIPTS, processes=5)


def rows(document: StudyDocument) -> Iterator[tuple[Result, Result]]:
    baseline = document.result("torch/cpu")
    return ((result, baseline) for result in document.results)


def test_every_column_has_a_row() -> None:
    assert [*COLUMNS] == [*METRICS]


@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if column.value])
def test_a_column_has_the_statistic_of_its_row(name: str, quiet: StudyDocument) -> None:
    column = COLUMNS[name]
    assert column.value is not None
    for pair in rows(quiet):
        assert METRICS[name].value(pair[0]) == pytest.approx(column.value(*pair), rel=1e-9)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_interval_of_its_row(name: str, quiet: StudyDocument) -> None:
    column, metric = COLUMNS[name], METRICS[name]
    assert metric.has_interval == (column.interval == BESIDE)
    if column.bounds is not None:
        for pair in rows(quiet):
            is_baseline = name == "speedup" and pair[0] is pair[1]
            assert metric.interval(pair[0]) == (None if is_baseline else pytest.approx(column.bounds(*pair), rel=1e-9))


@pytest.mark.parametrize(
    "machine",
    [Machine(seed=3), Machine(seed=3, bursts=0.05), Machine(seed=3, bursts=1.0)],
    ids=["quiet", "bursts", "busy"],
)
@pytest.mark.parametrize("processes", [1, 5])
def test_every_line_with_a_number_has_a_row(machine: Machine, processes: int) -> None:
    document = machine.measure(SCRIPTS, processes=processes)
    table = render(document, width=1000, notes=True)
    above, _, after = table.partition("engine  ")
    below = after.split("\n\n", 1)[1]
    for line in filter(None, map(str.strip, (*above.splitlines(), *below.splitlines()))):
        assert not re.search(r"\d", line) or any(re.fullmatch(one.pattern, line) for one in LINES), line


def test_every_row_of_lines_is_printed() -> None:
    studies = [
        *(Machine(seed=3, bursts=bursts).measure(SCRIPTS, processes=n) for bursts in (0.0, 0.05, 1.0) for n in (1, 5)),
        Machine(seed=3).measure({"torch": SCRIPTS["torch"]}),
    ]
    texts = [render(study, width=1000, notes=notes) for study in studies for notes in (True, False)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    for one in LINES:
        assert any(re.fullmatch(one.pattern, line) for line in lines), one.pattern
