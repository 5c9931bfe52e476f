"""CSV in long format: every value of a study has one line."""

from __future__ import annotations

import csv
import io

import pytest

from polybench.render import render
from polybench.render.study import STEP_TIMES
from polybench.render.table import one_line
from polybench.schema.metrics import METRICS, Metric
from polybench.schema.parity import ParityCheck
from tests.factories import measured, study, unmeasured
from tests.render.malicious_inputs import MALICIOUS_TEXT, malicious_study


def parse(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_each_step_time_has_a_line_with_its_indices() -> None:
    configuration = measured("torch+compile@old/cpu", 0.01)
    found = [
        one for one in parse(render(study(configuration), "csv-long", columns=[])) if one["quantity"] == STEP_TIMES
    ]
    assert len(found) == sum(len(rounds) for process in configuration.nested_step_times for rounds in process)
    for one in found:
        process, number, index = (int(one[name]) for name in ("process", "round", "index"))
        assert float(one["value"]) == configuration.nested_step_times[process][number][index]
    assert {(one["engine"], one["variant"], one["environment"], one["unit"]) for one in found} == {
        ("torch", "compile", "old", "s")
    }


def test_metrics_have_units_and_intervals(columns: list[Metric]) -> None:
    configuration = measured("tf/cpu", 0.01)
    found = parse(
        render(study(configuration, unmeasured("torch/cpu", "unavailable", "no")), "csv-long", columns=columns)
    )
    by_name = {one["quantity"]: one for one in found if one["configuration"] == "tf/cpu"}
    speedup = by_name["speedup"]
    interval = METRICS["speedup"].interval(configuration)
    assert interval is not None
    assert (float(speedup["low"]), float(speedup["high"])) == pytest.approx(interval)
    assert by_name["peak_memory"]["unit"] == "B"
    assert [(one["quantity"], one["value"]) for one in found if one["configuration"] == "torch/cpu"] == [
        ("status", "unavailable"), ("ranked", "false"), ("parity", "skipped"),
    ]  # fmt: skip


def test_row_that_failed_the_parity_check_is_not_ranked() -> None:
    failed = measured("tf/cpu", 0.01, parity=ParityCheck("fail", "loss"))
    found = parse(render(study(measured("torch/cpu", 0.01), failed), "csv-long", columns=[]))
    ranked = {one["configuration"]: one["value"] for one in found if one["quantity"] == "ranked"}
    assert ranked == {"torch/cpu": "true", "tf/cpu": "false"}


def test_malicious_texts_stay_in_their_fields() -> None:
    found = parse(render(malicious_study(), "csv-long", columns=[]))
    assert {one["study"] for one in found} == {one_line(MALICIOUS_TEXT)}
    assert {len(one) for one in found} == {15}
    assert None not in {key for one in found for key in one}
