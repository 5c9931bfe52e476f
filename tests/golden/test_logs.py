"""Recorded logs: what `derive` computes from them, and the schema of their lines."""

from __future__ import annotations

import json

import msgspec
import pytest
from jsonschema import Draft202012Validator

from polybench.errors import BadInput
from polybench.log import JSON_SCHEMA, StudyEnded, log_schema, read_log
from polybench.results.document import derive
from polybench.schema.study import to_json
from tests.golden.logs import FOLDER, STUDIES, saved_report
from tests.golden.test_reports import is_same, leaves


@pytest.mark.parametrize("name", STUDIES)
def test_the_report_of_a_recorded_log_has_not_changed(name: str) -> None:
    found = dict(leaves(json.loads(to_json(derive(read_log(FOLDER / f"{name}.jsonl"))))))
    saved = dict(leaves(saved_report(name)))
    moved = {
        place: (saved.get(place), found.get(place))
        for place in saved | found
        if not is_same(saved.get(place), found.get(place))
    }
    assert not moved


def test_the_schema_matches_the_types() -> None:
    Draft202012Validator.check_schema(json.loads(JSON_SCHEMA.read_text()))
    assert JSON_SCHEMA.read_text() == log_schema(), "outdated: run make schema"


@pytest.mark.parametrize("name", STUDIES)
def test_every_line_follows_the_schema(name: str) -> None:
    schema = Draft202012Validator(json.loads(JSON_SCHEMA.read_text()))
    for line in (FOLDER / f"{name}.jsonl").read_text().splitlines():
        schema.validate(json.loads(line))
    broken = json.loads(line) | {"event": "surprise"}
    assert not schema.is_valid(broken)


def test_another_baseline_and_tolerance_need_no_new_measurement() -> None:
    events = read_log(FOLDER / "bursts.jsonl")
    saved, turned = derive(events), derive(events, baseline="torch/cpu", tolerance=0.25)
    assert (saved.settings.baseline, turned.settings.baseline) == ("tf/cpu", "torch/cpu")
    assert (saved.settings.tolerance, turned.settings.tolerance) == (0.01, 0.25)
    before, after = saved.result("torch/cpu").vs_baseline, turned.result("tf/cpu").vs_baseline
    assert before is not None
    assert after is not None
    assert after.speedup == pytest.approx(1 / before.speedup)
    assert [one.step_time for one in saved.results] == [one.step_time for one in turned.results]
    with pytest.raises(BadInput, match="unknown configuration 'jax/cpu'"):
        derive(events, baseline="jax/cpu")


def test_step_times_that_differ_from_what_was_printed_are_a_warning() -> None:
    *events, end = read_log(FOLDER / "trainings.jsonl")
    assert isinstance(end, StudyEnded)
    assert [*end.step_seconds] == ["torch/cpu", "tf/cpu"]
    printed = msgspec.structs.replace(end, step_seconds=end.step_seconds | {"tf/cpu": 0.5})
    (warning,) = {*derive([*events, printed]).warnings} - {*derive([*events, end]).warnings}
    assert warning.startswith("tf/cpu: polybench 0.1.0")
    assert "printed a step time of 500 ms; this one computes 1" in warning
