from __future__ import annotations

from polybench.render import render
from polybench.schema.metrics import Metric
from tests.factories import measured, study, typical_study, unmeasured


def test_output_contains_tables_and_notes(columns: list[Metric]) -> None:
    text = render("markdown", typical_study(), columns)
    assert "| tf/cpu    | 8.55 ms ±2.5% |         14,971 | 1.93 (1.93 to 1.93) |       2.15 s |       412 MiB |" in text
    assert text.index("**not ranked: failed the parity check**") < text.index("| tf+keras_fit/cpu |")
    assert "- torch/cuda: unavailable: no CUDA" in text
    assert "- flux: known deviation: max-pool" in text


def test_special_characters_are_escaped(columns: list[Metric]) -> None:
    text = render(
        "markdown",
        study(measured("a|b/cpu", 0.01), unmeasured("tf/cpu", "failed", "<class 'X'> * `y` | z")),
        columns,
    )
    assert r"| a\|b/cpu |" in text
    assert r"failed: \<class 'X'> \* \`y\` \| z" in text


def test_every_table_line_has_the_same_number_of_cells(columns: list[Metric]) -> None:
    table = [line for line in render("markdown", typical_study(), columns).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {len(columns) + 2}


def test_study_without_measurements_has_no_table(columns: list[Metric]) -> None:
    text = render("markdown", study(unmeasured("tf/cpu", "failed", "crashed")), columns)
    assert "|" not in text
    assert "- tf/cpu: failed: crashed" in text
