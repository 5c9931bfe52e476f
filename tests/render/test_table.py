"""Layout of texts and of numbers in a terminal."""

from __future__ import annotations

import pytest

from polybench.render.table import Table, number_columns, text_columns, wrap
from polybench.render.terminal import format_rows, render


@pytest.mark.parametrize(
    "whole",
    [
        "`polybench data fetch`",
        "polybench show --published last",
        "polybench resume 20260101-000000-aaaa",
        "--wait-idle 30s",
        "pip install -e",
    ],
)
def test_no_line_breaks_inside_of_a_command(whole: str) -> None:
    for width in range(40, 80):
        text = wrap(f"CPU contention: 3 of 9 timing blocks; try {whole}; other text follows after this", width)
        assert any(whole in line for line in text.splitlines()), text
        assert max(map(len, text.splitlines())) <= width


def test_numbers_are_aligned_on_the_right() -> None:
    rows = [["flux", "29.0 ms ±1.8%"], ["torch", "8.03 ms ±0.76%"], ["tf", "1"], ["jax", ""]]
    table = Table(columns=[*text_columns("engine"), *number_columns("step")], rows=rows)
    assert format_rows(table).splitlines()[2:] == [
        "flux     29.0 ms ±1.8%",
        "torch   8.03 ms ±0.76%",
        "tf                   1",
        "jax",
    ]


def test_titles_wrap_to_the_width_of_their_numbers() -> None:
    rows = [["torch", "8.03 ms", "1.29 (1.27 to 1.31)"]]
    table = Table(columns=[*text_columns("engine"), *number_columns("typical step", "speed vs. torch")], rows=rows)
    assert format_rows(table).splitlines() == [
        "engine  typical      speed vs. torch",
        "           step",
        "------  -------  -------------------",
        "torch   8.03 ms  1.29 (1.27 to 1.31)",
    ]


def test_no_text_controls_the_terminal() -> None:
    text = "\x1b[31mred\u202e"
    part = Table(title=[text], columns=text_columns(text), rows=[[text]], notes=[text])
    table = Table(
        title=[text], columns=number_columns(text), rows=[[text]], statuses=[(text, text)], notes=[text],
        summary=[text], tables=[part], published=part,
    )  # fmt: skip
    found = render(table)
    assert not any(character in found for character in "\x1b\u202e")
    assert found.count("\\x1b[31mred\\u202e") == 15
