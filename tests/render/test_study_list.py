"""List of saved studies: its columns on terminals of different widths, and its notes."""

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
        "tags": [],
        "model": "lenet",
        "pass": "training",
        "dataset": "synthetic",
        "batch_size": 128,
        "configurations": ["torch/cpu", "tf/cpu"],
        "fastest": {"configuration": "torch/cpu", "step_seconds": 0.0101, "inconclusive": False},
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
        "fastest": fastest | {"parameters": {"batch_size": 128}, "inconclusive": False},
        "axes": {"batch_size": [8, 128]},
        "points": 2,
        "planned": 2,
    }
    return row(id, **sweep_fields | changes)


ROWS = [
    row("20260101-000000-aaaa", title="A long\ntitle", configurations=[f"flux/cpu#{n}" for n in range(1, 90)]),
    row("20260102-000000-bbbb", fastest=None, finished=False, resumable=True),
]


def test_each_study_is_a_line_and_a_corrupt_one_has_its_reason() -> None:
    header, _, first, second, *rest = render([*ROWS, CORRUPT]).splitlines()
    assert header.split() == ["id", "age", "workload", "fastest", "title", "engines"]
    texts = ["12 minutes", "lenet, batch 128, synthetic", "10.1 ms torch/cpu", "A long title", "85 more"]
    assert [text for text in texts if text not in first] == []
    assert second.startswith("20260102-000000-bbbb (to resume)")
    assert f"{CORRUPT['id']} unreadable: {REASON} to resume:" in " ".join(" ".join(rest).split())


SWEEP_ROWS = [
    row("20260104-000000-aaaa", sweep="sweep-20260104-000000-aaaa", batch_size=128),
    sweep("sweep-20260104-000000-aaaa"),
    row("20260104-000000-bbbb"),
    row("20260104-000000-cccc", sweep="sweep-20260104-000000-aaaa", batch_size=8),
]


def test_sweep_row_contains_points_axes_and_fastest_point() -> None:
    _, _, *lines = render(SWEEP_ROWS).partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == ["sweep-20260104-000000-aaaa", "20260104-000000-bbbb"]
    assert "lenet, 2 points over batch size 8, 128" in lines[0]
    assert "1,280 images/s tf/cpu, batch size 128" in lines[0]
    started = sweep("20260105", points=1, finished=False, fastest=None)
    assert "1 of 2 points over batch size 8, 128" in render([started])
    assert "nothing measured" not in render([started])


def test_points_follow_their_sweep_on_request() -> None:
    _, _, *lines = render(SWEEP_ROWS, show_points=True).partition("\n\n")[0].splitlines()
    assert [line.split()[0][-4:] for line in lines] == ["aaaa", "aaaa", "cccc", "bbbb"]
    assert [line.startswith("  2026") for line in lines] == [False, True, True, False]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, ["id", "age", "workload", "fastest", "title", "engines"]),
        (130, ["id", "age", "workload", "fastest", "title"]),
        (105, ["id", "age", "workload", "fastest", "title"]),
        (95, ["id", "age", "workload", "fastest"]),
        (40, ["id", "workload", "fastest"]),
    ],
)
def test_least_important_columns_are_omitted_first(width: int, columns: list[str]) -> None:
    assert render(ROWS, width).splitlines()[0].split() == columns


def test_a_title_is_shortened_to_the_width() -> None:
    rows = [row("20260101-000000-aaaa", title="nightly " * 5, tags=["ci"])]
    for width in (92, 100, 110):
        line = render(rows, width).splitlines()[2]
        assert len(line) == width
        assert line.endswith("…")
    assert render(rows, 130).splitlines()[2].endswith(" #ci")


@pytest.mark.parametrize("width", [100, 120])
def test_each_study_is_one_line_and_stays_marked(width: int) -> None:
    fastest = {"configuration": "torch+channels_last+compile/cpu", "step_seconds": 0.0101, "inconclusive": True}
    long = row("20260101-000000-aaaa", model="dlframeworks-cnn", resumable=True, fastest=fastest)
    many = {"batch_size": [1, 2, 4, 8, 16, 32, 64, 128, 256], "threads": [1, 2, 4]}
    text = render([long, sweep("sweep-20260102-000000-bbbb", axes=many, points=27, planned=27)], width)
    _, _, study, of_sweep, *_ = text.splitlines()
    assert study.startswith("20260101-000000-aaaa (to resume)")
    assert study.endswith(" ?")
    assert "?: it is not certain which is fastest" in text
    assert of_sweep.startswith("sweep-20260102-000000-bbbb")
    assert max(len(study), len(of_sweep)) <= width
