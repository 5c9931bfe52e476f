"""Figures of parts and of fixed costs: what is drawn is what was measured, with its intervals."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from polybench.core.document.layers import LayersDocument
from polybench.core.errors import BadInput
from polybench.plots import draw, image, overhead, parts
from polybench.plots.plot import NothingToDraw, Trace
from tests.export.test_layers import document
from tests.plots.documents import full_overhead

__all__ = ["document"]


def of_parts(document: LayersDocument, **options: Any) -> list[Trace]:
    return parts.draw(document, **options).traces


def test_parts_are_bars_with_intervals_and_the_residue_last(document: LayersDocument) -> None:
    flux, torch = of_parts(document)
    assert [flux["name"], torch["name"]] == ["flux/cpu", "torch/cpu"]
    assert flux["y"][:2] == ["conv2 + relu · forward", "conv2 + relu · data gradient"]
    assert flux["y"][-1] == "residue"
    assert flux["x"][:2] == pytest.approx([20.0, 40.0])
    assert flux["x"][-1] == pytest.approx(32.0, abs=0.01)
    assert torch["error_x"]["array"][1] == torch["error_x"]["arrayminus"][1] == pytest.approx(1.0)
    assert of_parts(document, sort="lost")[0]["y"][0] == "conv2 + relu · data gradient"


def test_a_part_that_an_engine_lacks_has_no_bar(document: LayersDocument) -> None:
    flux, torch, *others = document.engines
    torch = msgspec.structs.replace(torch, rows=torch.rows[1:])
    assert of_parts(msgspec.structs.replace(document, engines=[flux, torch, *others]))[1]["x"][0] is None


def test_overhead_is_points_and_the_fitted_line_from_zero() -> None:
    points, line, fixed = draw("overhead", full_overhead()).traces
    assert points["x"] == [1, 64]
    assert points["y"] == pytest.approx([2.1, 8.4])
    assert points["error_y"]["array"] == pytest.approx([0.2, 0.0])
    assert points["error_y"]["arrayminus"] == pytest.approx([0.1, 0.0])
    assert line["x"] == [0, 64]
    assert line["y"] == pytest.approx([2.0, 8.4])
    assert (fixed["x"], fixed["y"]) == ([0], [2.0])
    assert fixed["error_y"]["array"] == pytest.approx([0.5])


def test_a_cell_without_a_line_has_its_points_and_none_without_times_is_drawn() -> None:
    document = full_overhead()
    torch, tf = document.engines
    torch = msgspec.structs.replace(torch, fixed_seconds=None, seconds_per_sample=None)
    (points,) = overhead.draw(msgspec.structs.replace(document, engines=[torch, tf])).traces
    assert points["name"] == "torch/cpu"
    with pytest.raises(NothingToDraw, match="the overhead has no times: tf/cpu: no tf"):
        overhead.draw(msgspec.structs.replace(document, engines=[tf]))


def test_without_plotly_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench\[plot\]', or use rows\(\)"):
        image.figure(draw("overhead", full_overhead()))
