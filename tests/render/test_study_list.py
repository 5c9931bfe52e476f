"""List of saved studies on terminals of different widths."""

from __future__ import annotations

from typing import Any

import pytest

from polybench.render.study_list import render

REASON = (
    "cannot read unfinished/20260103-000000-cccc/state: Input data was truncated; `polybench run"
    " 20260103-000000-cccc` repeats it; `polybench resume 20260103-000000-cccc --discard` deletes it"
)
CORRUPT: dict[str, Any] = {"id": "20260103-000000-cccc", "created": None, "unreadable": REASON}


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
        "configurations": ["torch/cpu", "tf/cpu"],
        "fastest": {"configuration": "torch/cpu", "step_seconds": 0.0101},
        "finished": True,
        "interrupted": False,
        "resumable": False,
        "sweep": None,
        "axes": None,
        "points": None,
        "planned": None,
    } | changes


def sweep(id: str, **changes: Any) -> dict[str, Any]:
    fastest = {"configuration": "tf/cpu", "step_seconds": 0.1, "items_per_second": 1280.0, "input_kind": "image"}
    sweep_fields = {
        "kind": "sweep",
        "dataset": None,
        "batch_size": None,
        "fastest": fastest | {"parameters": {"batch_size": 128}},
        "axes": {"batch_size": [8, 128]},
        "points": 2,
        "planned": 2,
    }
    return row(id, **sweep_fields | changes)


ROWS = [
    row("20260101-000000-aaaa", title="A long\ntitle", configurations=[f"flux/cpu#{n}" for n in range(1, 90)]),
    row("20260102-000000-bbbb", fastest=None, finished=False, resumable=True),
]


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("rows", [ROWS, [*ROWS, CORRUPT], [CORRUPT]], ids=["valid", "both", "corrupt"])
def test_no_line_is_wider_than_the_terminal(rows: list[dict[str, Any]], width: int) -> None:
    long = {"20260103-000000-cccc/state:", "unfinished/20260103-000000-cccc/state:"}  # a path stays whole
    lines = [line for line in render(rows, width).splitlines() if line.strip() not in long]
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [40, 80, 100, 200, None])
def test_reason_of_a_corrupt_study_is_never_truncated(width: int | None) -> None:
    text = words(render([*ROWS, CORRUPT], width))
    start = text.index("unreadable:")
    assert text[start + 1 : start + 1 + len(words(REASON))] == words(REASON)


def test_without_a_width_each_study_is_one_line() -> None:
    header, _, first, second, third, *rest = render([*ROWS, CORRUPT]).splitlines()
    assert words(header) == ["id", "age", "title", "workload", "fastest", "engines"]
    assert "12 minutes" in first
    assert "A long title" in first
    assert first.endswith("85 more")
    assert second.startswith("20260102-000000-bbbb (to resume)")
    assert third.endswith(REASON)
    assert words(rest[-1])[:2] == ["to", "resume:"]


SWEEP_ROWS = [
    row("20260104-000000-aaaa", sweep="sweep-20260104-000000-aaaa", batch_size=128),
    sweep("sweep-20260104-000000-aaaa"),
    row("20260104-000000-bbbb"),
    row("20260104-000000-cccc", sweep="sweep-20260104-000000-aaaa", batch_size=8),
]


def test_sweep_row_contains_points_axes_and_fastest_point() -> None:
    _, _, *lines = render(SWEEP_ROWS).partition("\n\n")[0].splitlines()
    assert [words(line)[0] for line in lines] == ["sweep-20260104-000000-aaaa", "20260104-000000-bbbb"]
    assert "lenet, 2 points over batch size 8, 128" in lines[0]
    assert "1,280 images/s tf/cpu, batch size 128" in lines[0]
    started = sweep("20260105", points=1, finished=False, fastest=None)
    assert "1 of 2 points over batch size 8, 128" in render([started])
    assert "nothing measured" not in render([started])


def test_points_follow_their_sweep_on_request() -> None:
    _, _, *lines = render(SWEEP_ROWS, show_points=True).partition("\n\n")[0].splitlines()
    assert [words(line)[0][-4:] for line in lines] == ["aaaa", "aaaa", "cccc", "bbbb"]
    assert [line.startswith("  2026") for line in lines] == [False, True, True, False]


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_no_line_of_a_sweep_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, render(SWEEP_ROWS, width, show_points=True).splitlines())) <= width


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, ["id", "age", "title", "workload", "fastest", "engines"]),
        (125, ["id", "age", "title", "workload", "fastest"]),
        (105, ["id", "age", "workload", "fastest"]),
    ],
)
def test_least_important_columns_are_omitted_first(width: int, columns: list[str]) -> None:
    assert words(render(ROWS, width).splitlines()[0]) == columns


def test_narrow_terminal_shows_a_block_of_lines_per_study() -> None:
    first, second, corrupt, hint = render([*ROWS, CORRUPT], 40).split("\n\n")
    assert first.splitlines()[:5] == [
        "20260101-000000-aaaa",
        "  age       12 minutes",
        "  title     A long title",
        "  workload  lenet, synthetic, batch 128",
        "  fastest   10.1 ms torch/cpu",
    ]
    assert words(first)[-2:] == ["85", "more"]
    assert second.splitlines()[0] == "20260102-000000-bbbb (to resume)"
    assert "title" not in second
    assert corrupt.splitlines()[0] == CORRUPT["id"]
    assert "continue with polybench resume ID" in " ".join(words(hint))
