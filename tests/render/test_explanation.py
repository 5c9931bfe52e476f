"""An explanation as text."""

from __future__ import annotations

import json

import pytest

from polybench.analysis.explanation import SavedDocuments, explain
from polybench.networks.layers import Operation
from polybench.render.explanation import render, render_body
from polybench.schema.analyses import ExplanationDocument
from tests.factories import layers, measured, study

DENSE: list[tuple[str, Operation]] = [(f"dense{number}", "forward") for number in range(10)]


@pytest.fixture
def explanation() -> ExplanationDocument:
    document = study(measured("flux/cpu", 0.040), measured("torch/cpu", 0.020))
    times = {
        "flux/cpu": {key: 0.001 * (10 - number) for number, key in enumerate(DENSE)},
        "torch/cpu": dict.fromkeys(DENSE, 0.001),
    }
    timed = layers(document, {"flux/cpu": 0.045, "torch/cpu": 0.020}, times)
    return explain(document, SavedDocuments([timed]))


def test_breakdown_rows_add_up(explanation: ExplanationDocument) -> None:
    lines = [" ".join(line.split()) for line in render(explanation, "table").splitlines()]
    assert "component flux/cpu torch/cpu difference share" in lines
    assert "dense0, forward 10.0 ms 1.00 ms +9.00 ms 45.0%" in lines
    assert "2 other components 3.00 ms 2.00 ms +1.00 ms 5.0%" in lines
    assert any(line.startswith("unattributed: between operations") for line in lines)
    assert "step 40.0 ms 20.0 ms +20.0 ms 100.0%" in lines


def test_large_component_with_opposite_sign_is_shown() -> None:
    document = study(measured("flux/cpu", 0.040), measured("torch/cpu", 0.020))
    times = {"flux/cpu": dict.fromkeys(DENSE, 0.003), "torch/cpu": dict.fromkeys(DENSE, 0.001)}
    times["torch/cpu"][DENSE[0]] = 0.009
    timed = layers(document, {"flux/cpu": 0.040, "torch/cpu": 0.020}, times)
    lines = [line.split() for line in render(explain(document, SavedDocuments([timed])), "table").splitlines()]
    row = next(words for words in lines if words[:2] == ["dense0,", "forward"])
    assert row[-3:] == ["-6.00", "ms", "-30.0%"]


def test_lines_fit_and_numbers_stay_with_their_units(explanation: ExplanationDocument) -> None:
    lines = render(explanation, "table").splitlines()
    prose = [line for line in lines if line.startswith("- ")]
    assert prose
    assert all(len(line) <= 100 for line in prose)
    assert not [line for line in lines if line.lstrip().startswith(("ms ", "s ", "µs "))]
    assert "    polybench overhead --engines flux,torch --threads 2" in lines


def test_markdown_has_a_heading_per_comparison_and_commands_as_code(explanation: ExplanationDocument) -> None:
    text = render(explanation, "markdown")
    assert "### flux/cpu vs. torch/cpu" in text
    assert "| dense0, forward" in text
    assert "[overhead] `polybench overhead --engines flux,torch --threads 2`" in text
    assert render_body(explanation, "markdown") in text


def test_json_contains_all_components_and_statements(explanation: ExplanationDocument) -> None:
    document = json.loads(render(explanation, "json"))
    assert document["schema"] == "polybench.explanation/2"
    (comparison,) = document["comparisons"]
    breakdown = comparison["breakdowns"][0]
    assert len(breakdown["components"]) == 10
    rows = (*breakdown["components"], *breakdown["unattributed"])
    total = sum(row["difference_seconds"] for row in rows)
    assert total == pytest.approx(breakdown["difference_seconds"])
    assert {"text", "evidence", "seconds", "command"} == set(comparison["statements"][0])
