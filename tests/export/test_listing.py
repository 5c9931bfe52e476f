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
        "sweep": None,
        "axes": None,
        "points": None,
        "planned": None,
    } | changes


def sweep(id: str, **changes: Any) -> dict[str, Any]:
    fastest = {"cell": "tf/cpu", "seconds_per_step": 0.1, "samples_per_second": 1280.0, "unit": "image"}
    mine = {
        "kind": "sweep",
        "dataset": None,
        "batch_size": None,
        "fastest": fastest | {"values": {"batch_size": 128}},
        "axes": {"batch_size": [8, 128]},
        "points": 2,
        "planned": 2,
    }
    return row(id, **mine | changes)


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


SWEPT = [
    row("20260104-000000-aaaa", sweep="sweep-20260104-000000-aaaa", batch_size=128),
    sweep("sweep-20260104-000000-aaaa"),
    row("20260104-000000-bbbb"),
    row("20260104-000000-cccc", sweep="sweep-20260104-000000-aaaa", batch_size=8),
]


def test_a_sweep_is_one_row_with_its_points_what_is_varied_and_where_it_is_fastest() -> None:
    _, _, *lines = render(SWEPT).partition("\n\n")[0].splitlines()
    assert [words(line)[0] for line in lines] == ["sweep-20260104-000000-aaaa", "20260104-000000-bbbb"]
    assert "lenet, 2 points over batch size 8, 128" in lines[0]
    assert "1,280 images/s tf/cpu, batch size 128" in lines[0]
    begun = sweep("20260105", points=1, finished=False, fastest=None)
    assert "1 of 2 points over batch size 8, 128" in render([begun])
    assert "nothing measured" not in render([begun])


def test_points_of_a_sweep_stand_below_it_where_they_are_wanted() -> None:
    _, _, *lines = render(SWEPT, points=True).partition("\n\n")[0].splitlines()
    assert [words(line)[0][-4:] for line in lines] == ["aaaa", "aaaa", "cccc", "bbbb"]
    assert [line.startswith("  2026") for line in lines] == [False, True, True, False]


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_no_line_of_a_sweep_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, render(SWEPT, width, points=True).splitlines())) <= width


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
