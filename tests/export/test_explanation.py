"""An explanation as text."""

from __future__ import annotations

import json

import pytest

from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.layers import Part
from polybench.export.explanation import render, render_below
from polybench.report.explanation import Saved, explain
from tests.factories import layers, measured, study

DENSE: list[tuple[str, Part]] = [(f"dense{number}", "forward") for number in range(10)]


@pytest.fixture
def explanation() -> ExplanationDocument:
    document = study(measured("flux/cpu", 0.040), measured("torch/cpu", 0.020))
    parts = {
        "flux/cpu": {key: 0.001 * (10 - number) for number, key in enumerate(DENSE)},
        "torch/cpu": dict.fromkeys(DENSE, 0.001),
    }
    timed = layers(document, {"flux/cpu": 0.040 + 0.025, "torch/cpu": 0.020}, parts)
    return explain(document, Saved([timed]))


def test_an_account_has_rows_that_add_up(explanation: ExplanationDocument) -> None:
    lines = [" ".join(line.split()) for line in render(explanation, "table").splitlines()]
    assert "part flux/cpu torch/cpu difference share" in lines
    assert "dense0, forward 10.0 ms 1.00 ms +9.00 ms 45.0%" in lines
    assert "2 other parts 3.00 ms 2.00 ms +1.00 ms 5.0%" in lines
    assert any(line.startswith("residue: between the parts") for line in lines)
    assert "whole step 40.0 ms 20.0 ms +20.0 ms 100.0%" in lines


def test_what_goes_the_other_way_is_shown_where_it_is_large() -> None:
    document = study(measured("flux/cpu", 0.040), measured("torch/cpu", 0.020))
    parts = {"flux/cpu": dict.fromkeys(DENSE, 0.003), "torch/cpu": dict.fromkeys(DENSE, 0.001)}
    parts["torch/cpu"][DENSE[0]] = 0.009
    timed = layers(document, {"flux/cpu": 0.040, "torch/cpu": 0.020}, parts)
    lines = [line.split() for line in render(explain(document, Saved([timed])), "table").splitlines()]
    row = next(words for words in lines if words[:2] == ["dense0,", "forward"])
    assert row[-3:] == ["-6.00", "ms", "-30.0%"]


def test_lines_fit_and_no_number_is_parted_from_its_unit(explanation: ExplanationDocument) -> None:
    lines = render(explanation, "table").splitlines()
    prose = [line for line in lines if line.startswith("- ")]
    assert prose
    assert all(len(line) <= 100 for line in prose)
    assert not [line for line in lines if line.lstrip().startswith(("ms ", "s ", "µs "))]
    assert "    polybench overhead --engines flux,torch --threads 2" in lines


def test_markdown_has_a_heading_a_pair_and_commands_as_code(explanation: ExplanationDocument) -> None:
    text = render(explanation, "markdown")
    assert "### flux/cpu against torch/cpu" in text
    assert "| dense0, forward" in text
    assert "[overhead] `polybench overhead --engines flux,torch --threads 2`" in text
    assert render_below(explanation, "markdown") in text


def test_json_has_every_entry_and_all_sentences(explanation: ExplanationDocument) -> None:
    document = json.loads(render(explanation, "json"))
    assert document["schema"] == "polybench.explanation/1"
    (pair,) = document["pairs"]
    account = pair["accounts"][0]
    assert len(account["entries"]) == 10
    total = sum(entry["seconds"] for entry in (*account["entries"], *account["residue"]))
    assert total == pytest.approx(account["seconds"])
    assert {"text", "figure", "seconds", "command"} == set(pair["sentences"][0])
