from __future__ import annotations

from polybench.export.bars import render
from polybench.metrics import metrics_of
from tests.factories import study, typical_study

FULL = "█"


def lines_of(column: str) -> dict[str, str]:
    block = render(typical_study(), metrics_of([column])).split("\n\n")[1]
    title, *rows = block.splitlines()
    assert title == metrics_of([column])[0].title
    return {row.split()[0]: row for row in rows}


def test_bars_are_as_long_as_their_numbers() -> None:
    rows = lines_of("step_time")
    longest = rows["tf+keras_fit/cpu*"].count(FULL)
    assert longest > 40
    assert abs(rows["torch/cpu"].count(FULL) - longest * 0.0165 / 0.112) <= 1
    assert rows["tf/cpu"].endswith("8.55 ms ±2.5%")
    assert max(map(len, rows.values())) <= 100


def test_what_is_not_ranked_is_marked_and_said() -> None:
    text = render(typical_study(), metrics_of(["step_time"]))
    assert "* not ranked, did not do the same arithmetic: tf+keras_fit/cpu" in text


def test_words_and_columns_without_a_number_have_no_bars() -> None:
    text = render(typical_study(), metrics_of(["parity", "power"]))
    assert FULL not in text
    assert "parity\n" not in text
    assert "torch/cuda: unavailable" in text


def test_no_escape_sequences_and_a_study_without_rows() -> None:
    assert "\x1b" not in render(typical_study(), metrics_of(["all"]))
    assert render(study(), metrics_of(["step_time"])).startswith("lenet")
