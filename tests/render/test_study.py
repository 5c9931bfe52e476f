"""A study as a table: rows by status, title, columns that fit, and reasons for missing values."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from polybench.render import WIDTH, render
from polybench.render.methods import methods_text
from polybench.render.study import fit_columns, header_lines
from polybench.render.study import table as study_table
from polybench.render.table import Table, TableOptions
from polybench.render.terminal import table_width
from polybench.schema.analyses import RepetitionSpread
from polybench.schema.metrics import DEFAULT_COLUMNS, METRICS, Metric, select_metrics
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import Allocations, Cost, Interference
from polybench.schema.result import SINGLE_PROCESS, BaselineComparison, Comparison, Result, StepTimes, busy_reason
from polybench.schema.study import StudyDocument
from tests.factories import FLUX_DEVIATIONS, measured, native_allocation, study, typical_study, unmeasured

FULL: dict[str, Any] = {
    "allocations": Allocations(native=native_allocation(54_840_000, 0.474)),
    "cost": Cost(0.0034, 2.5),
    "gpu_speedup": Comparison("torch/cpu", 97.8, None),
}


def build(document: StudyDocument, columns: list[Metric]) -> Table:
    return study_table(document, TableOptions(columns=columns))


def test_rows_are_grouped_by_status(columns: list[Metric]) -> None:
    table = build(typical_study(), columns)
    (unranked,) = table.tables
    assert [row[0] for row in table.rows] == ["tf/cpu", "torch/cpu", "flux/cpu"]
    assert [row[0] for row in unranked.rows] == ["tf+keras_fit/cpu"]
    assert [configuration for configuration, _ in table.statuses] == ["torch/cuda", "tf/cuda"]
    assert {len(row) for row in [*table.rows, *unranked.rows, table.columns]} == {len(columns) + 1}
    assert [column.numeric for column in table.columns] == [False, *[True] * (len(columns) - 1), False]


def test_rows_are_in_the_order_of_the_mean_step_whatever_is_typical(columns: list[Metric]) -> None:
    seldom, always = measured("tf/cpu", 0.01), measured("torch/cpu", 0.012)
    assert seldom.step_time
    seldom.step_time = msgspec.structs.replace(seldom.step_time, mean=0.013)  # pauses in few steps
    assert [row[0] for row in build(study(seldom, always), columns).rows] == ["torch/cpu", "tf/cpu"]


def test_status_contains_reason_hint_and_log(columns: list[Metric]) -> None:
    status = dict(build(typical_study(), columns).statuses)
    assert status["torch/cuda"] == (
        "unavailable: no CUDA device is visible to PyTorch (hint: install an NVIDIA driver, then run polybench doctor)"
    )
    assert status["tf/cuda"] == "failed: killed by signal 9 (SIGKILL) out of memory? (log: /tmp/polybench/tf.log)"
    interrupted = build(study(unmeasured("tf/cpu", "interrupted", None)), columns)
    assert interrupted.statuses == [("tf/cpu", "interrupted")]


def test_configuration_that_failed_after_some_rounds_is_not_ranked(columns: list[Metric]) -> None:
    table = build(study(measured("tf/cpu", 0.01, status="failed", reason="timed out")), columns)
    assert table.rows == table.tables == []
    assert table.statuses == [("tf/cpu", "failed: timed out")]


def test_empty_chosen_columns_are_explained() -> None:
    chosen = select_metrics(["step_time", "cost_per_epoch", "relative_cost", "power"])
    *_, cost, power = build(study(measured("torch/cpu", 0.01)), chosen).notes
    assert cost == "cost_per_epoch, relative_cost: empty: needs `--price`, for example `--price cpu=0.24`"
    assert power == "power: empty: not measured on this machine; see `polybench doctor`"
    assert not any("empty" in note for note in build(typical_study(), select_metrics(["parity"])).notes)
    assert build(study(unmeasured("torch/cpu", "failed", "crashed")), chosen).notes == []


def names(*results: Result, width: int | None = WIDTH) -> list[str]:
    return [column.name for column in fit_columns(study(*results), select_metrics(DEFAULT_COLUMNS), width)]


def test_columns_without_values_are_omitted() -> None:
    selected = names(measured("torch/cpu", 0.0165), unmeasured("tf/cuda", "unavailable", "no NVIDIA driver"))
    assert {"step_time", "speedup", "throughput", "parity", "peak_memory", "cold_start"} == set(selected)
    assert names(unmeasured("tf/cpu", "failed", "crashed")) == []


def test_least_important_columns_are_omitted_first() -> None:
    wide = [measured("torch+channels_last+compile/cuda", 0.0165, **FULL), measured("tf/cpu", 0.009, **FULL)]
    selected = names(*wide)
    assert selected[:4] == ["step_time", "speedup", "parity", "throughput"]
    assert "relative_cost" not in selected
    assert table_width(study_table(study(*wide), TableOptions(width=WIDTH))) <= WIDTH
    assert (
        study_table(study(*wide), TableOptions(width=WIDTH)).more[-1]
        == "columns left out: gpu_speedup, relative_cost, cost_per_epoch"
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_table_uses_the_width_of_the_terminal(width: int) -> None:
    wide = study(*(measured(f"{name}/cpu", 0.0165, **FULL) for name in ("flux", "torch", "tf")))
    lines = render(wide, "table", width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(names(*wide.results, width=width)) > len(names(*wide.results, width=width - 20))


def test_three_engines_take_fourteen_lines_below_the_title() -> None:
    torch, tf, flux = (measured(f"{name}/cpu", 0.0165) for name in ("torch", "tf", "flux"))
    flux.parity = ParityCheck("pass", known_deviations=FLUX_DEVIATIONS)
    document = study(torch, tf, flux, warnings=["a warning", "another one"])
    title, empty, *below = render(document, "table", width=80, name="last").splitlines()
    assert title == "lenet on synthetic images, batch 128, fp32, 2 threads; Some, 2 cores; 2025-01-01"
    assert len([empty, *below]) <= 14
    assert below[-1] == "  Why: polybench explain last   6 notes: polybench show last --notes"
    assert max(map(len, [title, *below])) <= 80


def test_the_spread_between_days_follows_the_interval_if_there_is_room() -> None:
    torch, tf, flux = (measured(f"{name}/cpu", 0.0165) for name in ("torch", "tf", "flux"))
    line = "  Between 4 studies on different days, speeds vary by ±3.0% (standard deviation)"

    def repeated() -> StudyDocument:
        return msgspec.structs.replace(study(torch, tf, flux), repetitions=RepetitionSpread("speeds", 0.03, 4))

    plain = render(repeated(), "table", width=80).splitlines()
    assert plain[-3:-1] == ["  Brackets: 95% intervals over 3 runs, each in a fresh process, of this study.", line]
    assert len(plain) - 1 <= 14
    flux.parity = ParityCheck("pass", known_deviations=FLUX_DEVIATIONS)
    tf.caveat = "a second footnote"
    full = render(repeated(), "table", width=80)
    assert line not in full
    assert len(full.splitlines()) - 1 <= 14
    assert line in render(repeated(), "table", width=80, notes=True)
    assert "speeds vary by ±3.0" in methods_text(repeated())


def test_all_notes_replace_the_commands_of_the_last_line() -> None:
    document = study(measured("torch/cpu", 0.0165), measured("tf/cpu", 0.01), warnings=["a warning"])
    assert "a warning" not in (short := render(document))
    assert "4 notes: polybench show ID --notes" in short
    every = render(document, notes=True)
    assert "--notes" not in every
    assert [line.strip() for line in every.splitlines()[-4:]] == [
        "Brackets: 95% intervals over 3 runs, each in a fresh process, of this study.",
        "lenet (62,006 parameters) on synthetic images, batch 128, fp32, 2 threads, malloc retain, seed 0",
        "3 processes x 2 rounds x 3 steps; baseline torch/cpu",
        "a warning",
    ]
    assert "a warning" in render(document, "github")


def test_the_speed_is_named_after_a_short_baseline() -> None:
    def title(baseline: str) -> str:
        document = study(measured(baseline, 0.0165), measured("tf/cpu", 0.01))
        document.settings.baseline = baseline
        return study_table(document, TableOptions(columns=select_metrics(["speedup"]))).columns[1].title

    assert title("torch/cpu") == "speed vs. torch"
    assert title("torch+channels_last+compile/cpu") == "speed vs. baseline"


def busy(configuration: str) -> Result:
    nothing: dict[str, Any] = dict.fromkeys(("step_time", "items_per_second", "epoch_seconds", "vs_baseline"))
    return measured(configuration, 0.7, busy=True, reason=busy_reason(Interference(), ["python3", "julia"]), **nothing)


def test_a_row_without_a_quiet_timing_block_has_no_number() -> None:
    text = render(study(busy("torch/cpu"), busy("tf/cpu"), unmeasured("flux/cpu", "unavailable", "no Julia")))
    assert text.startswith(
        """\
lenet on synthetic images, batch 128, fp32, 2 threads; Some, 2 cores; 2025-01-01

  NO RESULT: other programs (python3, julia) used the cores in every timing block. Stop other
  programs, or let polybench wait: polybench compare --wait-idle 60s

engine       step   start   memory  result
---------  ------  ------  -------  ------
torch/cpu  (busy)  2.15 s  412 MiB  same
tf/cpu     (busy)  2.15 s  412 MiB  same
flux/cpu   unavailable: no Julia
"""
    )


def test_a_disturbed_row_that_computes_something_else_says_so() -> None:
    differing = busy("tf/cpu")
    differing.parity = ParityCheck("fail", "the loss differs")
    text = render(study(busy("torch/cpu"), differing))
    assert "ok: other programs" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("tf/cpu ")]
    assert "(busy)" in row
    assert "DIFFERS" in row


@pytest.mark.parametrize("format", ["table", "markdown", "github", "html", "csv", "latex"])
def test_a_disturbed_row_has_its_mark_in_every_format(format: str) -> None:
    document = study(measured("torch/cpu", 0.0165), busy("tf/cpu"))
    text = render(document, format, columns=list(METRICS.values()))
    row = next(line for line in text.splitlines() if "tf/cpu" in line)
    assert not re.search(r"\b(69|70|71)\d ms|\b0\.[67]|\b1\.4\d|\b18\d\b", row)
    if format != "csv":
        assert "(busy)" in text
        assert "NO RESULT for tf: other programs (python3, julia) used" in " ".join(text.split())


def test_an_interval_without_meaning_has_no_number() -> None:
    wide = measured("tf/cpu", 0.01)
    assert wide.step_time is not None
    wide.step_time = msgspec.structs.replace(wide.step_time, ci95=(0.004, 0.021))
    wide.vs_baseline = BaselineComparison("torch/cpu", 1.2, (0.4, 3.0), inconclusive_reason="too wide")
    for metric, text in {"step_time": "(no result)", "throughput": "", "speedup": "(no result)"}.items():
        assert METRICS[metric].text(wide) == text
        assert METRICS[metric].fields(wide)[metric] is None
    one_run = BaselineComparison("torch/cpu", 1.2, (0.9, 1.6), "single_process", inconclusive_reason=SINGLE_PROCESS)
    assert METRICS["speedup"].text(measured("tf/cpu", 0.01, vs_baseline=one_run)) == "1.20 (one run)"


def test_document_formats_have_no_width() -> None:
    wide = measured("torch+channels_last+compile/cuda", 0.0165, **FULL)
    all_names = names(wide, width=None)
    assert len(all_names) > len(names(wide))
    for name in ("markdown", "html"):
        text = render(study(wide), name, width=40).replace("\\", "")
        assert all(column.title in text for column in select_metrics(all_names))


def test_header_describes_workload_extent_and_machine() -> None:
    assert header_lines(study(measured("torch/cpu", 0.0165))) == [
        "lenet (62,006 parameters) on synthetic images, batch 128, fp32, 2 threads, malloc retain, seed 0",
        "3 processes x 2 rounds x 3 steps; baseline torch/cpu",
        "Some CPU @ 2.00GHz, 2 cores",
    ]
    assert " on CIFAR-10, " in header_lines(study(dataset="CIFAR-10"))[0]
    assert header_lines(study(unmeasured("tf/cpu", "failed", "crashed")))[1] == "nothing measured; baseline torch/cpu"


@pytest.mark.parametrize(("cpus", "text"), [([1], "CPU 1"), ([2, 5], "CPUs 2,5")])
def test_header_lists_pinned_cpus(cpus: list[int], text: str) -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.settings.pinned_cpus = cpus
    assert f", 2 threads pinned to {text}, malloc retain, " in header_lines(document)[0]


def test_header_counts_what_ran() -> None:
    complete = measured("torch/cpu", 0.0165)
    shortened = measured("tf/cuda", 0.01, step_times=StepTimes("block", 20, [[[0.01]]]))
    assert header_lines(study(complete, shortened))[1].startswith("1 to 3 processes x 1 to 2 rounds x 3 to 20 steps")


def test_header_describes_the_input_pipeline() -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.settings.input, document.settings.loader_workers, document.settings.augment = "pipeline", 1, True
    assert header_lines(document)[0].endswith("seed 0, pipeline with 1 loader worker, augmented")
