"""Long CSV: every value of a study once, each in a line of its own."""

from __future__ import annotations

import csv
import io

import pytest

from polybench.core.document.identity import Parity
from polybench.export import render
from polybench.export.comma_long import HEADER, SAMPLE
from polybench.metrics import METRICS
from polybench.metrics.base import Metric
from tests.export.hostile import TEXT, hostile
from tests.factories import absent, measured, study


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_each_sample_has_a_line_with_its_place() -> None:
    cell = measured("torch+compile@old/cpu", 0.01)
    found = [one for one in lines(render("csv-long", study(cell), [])) if one["quantity"] == SAMPLE]
    assert len(found) == sum(len(rounds) for process in cell.steps for rounds in process)
    for one in found:
        process, number, index = (int(one[name]) for name in ("process", "round", "sample"))
        assert float(one["value"]) == cell.steps[process][number][index]
    assert {(one["engine"], one["variant"], one["environment"], one["unit"]) for one in found} == {
        ("torch", "compile", "old", "s")
    }


def test_metrics_have_their_units_and_intervals_and_the_unmeasured_no_line(columns: list[Metric]) -> None:
    cell = measured("tf/cpu", 0.01)
    found = lines(render("csv-long", study(cell, absent("torch/cpu", "unavailable", "no")), columns))
    by_name = {one["quantity"]: one for one in found if one["cell"] == "tf/cpu"}
    speedup = by_name["speedup"]
    interval = METRICS["speedup"].interval(cell)
    assert interval is not None
    assert (float(speedup["low"]), float(speedup["high"])) == pytest.approx(interval)
    assert by_name["peak_memory"]["unit"] == "B"
    assert [(one["quantity"], one["value"]) for one in found if one["cell"] == "torch/cpu"] == [
        ("status", "unavailable"), ("ranked", "false"), ("parity", "skipped"),
    ]  # fmt: skip


def test_a_row_that_failed_the_check_is_not_ranked() -> None:
    wrong = measured("tf/cpu", 0.01, parity=Parity("fail", "loss"))
    found = lines(render("csv-long", study(measured("torch/cpu", 0.01), wrong), []))
    ranked = {one["cell"]: one["value"] for one in found if one["quantity"] == "ranked"}
    assert ranked == {"torch/cpu": "true", "tf/cpu": "false"}


def test_texts_stay_in_their_fields() -> None:
    found = lines(render("csv-long", hostile(), []))
    assert {one["study"] for one in found} == {TEXT}
    assert {len(one) for one in found} == {len(HEADER)}
    assert None not in {key for one in found for key in one}
