"""The list of saved studies, as wide as a terminal is."""

from __future__ import annotations

from typing import Any

import pytest

from polybench.export.listing import render

WHY = (
    "cannot read unfinished/20260103-000000-cccc/state: Input data was truncated; `polybench run"
    " 20260103-000000-cccc` measures all again; `polybench resume 20260103-000000-cccc --discard` removes it"
)
DAMAGED: dict[str, Any] = {"id": "20260103-000000-cccc", "created": None, "unreadable": WHY}


def row(id: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": id,
        "kind": "study",
        "created": "2026-01-01T00:00:00Z",
        "age_seconds": 720.0,
        "title": None,
        "model": "lenet",
        "dataset": "synthetic",
        "batch_size": 128,
        "cells": ["torch/cpu", "tf/cpu"],
        "fastest": {"cell": "torch/cpu", "seconds_per_step": 0.0101},
        "finished": True,
        "interrupted": False,
        "resumable": False,
    } | changes


ROWS = [
    row("20260101-000000-aaaa", title="An old\nstory", cells=[f"flux/cpu#{n}" for n in range(1, 90)]),
    row("20260102-000000-bbbb", fastest=None, finished=False, resumable=True),
]


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("rows", [ROWS, [*ROWS, DAMAGED], [DAMAGED]], ids=["sound", "both", "damaged"])
def test_no_line_is_wider_than_the_terminal(rows: list[dict[str, Any]], width: int) -> None:
    long = {"20260103-000000-cccc/state:", "unfinished/20260103-000000-cccc/state:"}  # a path stays whole
    lines = [line for line in render(rows, width).splitlines() if line.strip() not in long]
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [40, 80, 100, 200, None])
def test_what_mends_a_damaged_study_is_never_cut(width: int | None) -> None:
    text = words(render([*ROWS, DAMAGED], width))
    begin = text.index("unreadable:")
    assert text[begin + 1 : begin + 1 + len(words(WHY))] == words(WHY)


def test_without_a_width_a_study_is_a_line() -> None:
    header, _, first, second, third, *rest = render([*ROWS, DAMAGED]).splitlines()
    assert words(header) == ["id", "age", "title", "workload", "fastest", "cells"]
    assert "12 minutes" in first
    assert "An old story" in first
    assert first.endswith("85 more")
    assert second.startswith("20260102-000000-bbbb (to resume)")
    assert third.endswith(WHY)
    assert words(rest[-1])[:2] == ["to", "resume:"]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, ["id", "age", "title", "workload", "fastest", "cells"]),
        (125, ["id", "age", "title", "workload", "fastest"]),
        (105, ["id", "age", "workload", "fastest"]),
    ],
)
def test_what_matters_least_is_left_out_first(width: int, columns: list[str]) -> None:
    assert words(render(ROWS, width).splitlines()[0]) == columns


def test_a_narrow_terminal_has_a_block_of_lines_for_each_study() -> None:
    one, two, damaged, hint = render([*ROWS, DAMAGED], 40).split("\n\n")
    assert one.splitlines()[:5] == [
        "20260101-000000-aaaa",
        "  age       12 minutes",
        "  title     An old story",
        "  workload  lenet, synthetic, batch 128",
        "  fastest   10.1 ms torch/cpu",
    ]
    assert words(one)[-2:] == ["85", "more"]
    assert two.splitlines()[0] == "20260102-000000-bbbb (to resume)"
    assert "title" not in two
    assert damaged.splitlines()[0] == DAMAGED["id"]
    assert "polybench resume ID goes on" in " ".join(words(hint))
