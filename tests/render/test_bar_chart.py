from __future__ import annotations

from polybench.render.bar_chart import render
from polybench.schema.metrics import select_metrics
from tests.factories import study, typical_study

FULL = "█"


def bars_of(column: str) -> dict[str, str]:
    block = render(typical_study(), select_metrics([column])).split("\n\n")[1]
    title, *rows = block.splitlines()
    assert title == select_metrics([column])[0].title
    return {row.split()[0]: row for row in rows}


def test_bar_lengths_are_proportional_to_values() -> None:
    rows = bars_of("step_time")
    longest = rows["tf+keras_fit/cpu*"].count(FULL)
    assert longest > 40
    assert abs(rows["torch/cpu"].count(FULL) - longest * 0.0165 / 0.112) <= 1
    assert rows["tf/cpu"].endswith("8.55 ms ±2.5%")
    assert max(map(len, rows.values())) <= 100


def test_unranked_rows_are_marked_and_explained() -> None:
    text = render(typical_study(), select_metrics(["step_time"]))
    assert "* not ranked (failed the parity check): tf+keras_fit/cpu" in text


def test_columns_without_numbers_have_no_bars() -> None:
    text = render(typical_study(), select_metrics(["parity", "power"]))
    assert FULL not in text
    assert "parity\n" not in text
    assert "torch/cuda: unavailable" in text


def test_output_contains_no_escape_sequences() -> None:
    assert "\x1b" not in render(typical_study(), select_metrics(["all"]))
    assert render(study(), select_metrics(["step_time"])).startswith("lenet")
