"""Figures of operations and overhead show the measured values with their intervals."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.figures import draw, image_export
from polybench.figures.figure import NoData, Trace
from polybench.schema.measurements import LayersDocument
from tests.figures.documents import full_overhead
from tests.render.test_layers import document

__all__ = ["document"]


def operation_traces(document: LayersDocument, **options: Any) -> list[Trace]:
    return draw("operations", document, **options).traces


def test_operations_are_bars_with_intervals(document: LayersDocument) -> None:
    flux, torch = operation_traces(document)
    assert [flux["name"], torch["name"]] == ["flux/cpu", "torch/cpu"]
    assert flux["y"][:2] == ["conv2 + relu · forward", "conv2 + relu · input gradient"]
    assert flux["y"][-1] == "unattributed"
    assert flux["x"][:2] == pytest.approx([20.0, 40.0])
    assert flux["x"][-1] == pytest.approx(32.0, abs=0.01)
    assert torch["error_x"]["array"][1] == torch["error_x"]["arrayminus"][1] == pytest.approx(1.0)
    assert operation_traces(document, sort="slowdown")[0]["y"][0] == "conv2 + relu · input gradient"


def test_missing_operation_has_no_bar(document: LayersDocument) -> None:
    flux, torch, *others = document.configurations
    torch = msgspec.structs.replace(torch, rows=torch.rows[1:])
    assert operation_traces(msgspec.structs.replace(document, configurations=[flux, torch, *others]))[1]["x"][0] is None


def test_overhead_shows_points_and_the_fit_from_zero() -> None:
    points, line, overhead_mark = draw("overhead", full_overhead()).traces
    assert points["x"] == [1, 64]
    assert points["y"] == pytest.approx([2.1, 8.4])
    assert points["error_y"]["array"] == pytest.approx([0.2, 0.0])
    assert points["error_y"]["arrayminus"] == pytest.approx([0.1, 0.0])
    assert line["x"] == [0, 64]
    assert line["y"] == pytest.approx([2.0, 8.4])
    assert (overhead_mark["x"], overhead_mark["y"]) == ([0], [2.0])
    assert overhead_mark["error_y"]["array"] == pytest.approx([0.5])


def test_configuration_without_a_fit_has_points() -> None:
    document = full_overhead()
    torch, tf = document.configurations
    torch = msgspec.structs.replace(torch, overhead_seconds=None, seconds_per_item=None)
    (points,) = draw("overhead", msgspec.structs.replace(document, configurations=[torch, tf])).traces
    assert points["name"] == "torch/cpu"
    with pytest.raises(NoData, match="the overhead has no times: tf/cpu: no tf"):
        draw("overhead", msgspec.structs.replace(document, configurations=[tf]))


def test_missing_plotly_is_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench-dl\[plot\]', or use rows\(\)"):
        image_export.to_plotly(draw("overhead", full_overhead()))
