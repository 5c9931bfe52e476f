"""Figures: what is drawn is what was measured, with its intervals."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from polybench.core.document.layers import LayersDocument
from polybench.core.document.overhead import (
    EngineOverhead,
    OverheadDocument,
    OverheadIntervals,
    OverheadPoint,
)
from polybench.core.errors import BadInput
from polybench.plots.figures import layers_figure, overhead_figure
from tests.export.test_layers import document
from tests.factories import study

__all__ = ["document"]

TOLD = study()
SHARED: dict[str, Any] = {
    "created": TOLD.created,
    "polybench": TOLD.polybench,
    "argv": [],
    "model": "lenet",
    "host": TOLD.host,
}
OVERHEAD = OverheadDocument(
    threads=2,
    engines=[
        EngineOverhead(
            cell="torch/cpu", engine="torch", variant=None, device="cpu", status="ok",
            fixed_seconds=2e-3, seconds_per_sample=1e-4,
            intervals=OverheadIntervals((1.5e-3, 2.5e-3), (0.9e-4, 1.1e-4)),
            points=[OverheadPoint(1, 2.1e-3, (2e-3, 2.3e-3)), OverheadPoint(64, 8.4e-3, None)],
        ),
        EngineOverhead(
            cell="tf/cpu", engine="tf", variant=None, device="cpu", status="unavailable", reason="no tf"
        ),
    ],
    **SHARED,
)  # fmt: skip


@pytest.fixture(autouse=True)
def plotly() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")


def test_layers_are_bars_with_intervals_and_the_residue_last(document: LayersDocument) -> None:
    figure = layers_figure(document)
    assert [trace.name for trace in figure.data] == ["flux/cpu", "torch/cpu"]
    flux, torch = figure.data
    assert flux.y[:2] == ("conv2 + relu · forward", "conv2 + relu · data gradient")
    assert flux.y[-1] == "residue"
    assert flux.x[:2] == pytest.approx((20.0, 40.0))
    assert flux.x[-1] == pytest.approx(32.0, abs=0.01)
    assert torch.error_x.array[1] == torch.error_x.arrayminus[1] == pytest.approx(1.0)
    assert layers_figure(document, "lost").data[0].y[0] == "conv2 + relu · data gradient"


def test_a_part_that_an_engine_lacks_has_no_bar(document: LayersDocument) -> None:
    flux, torch, *others = document.engines
    torch = msgspec.structs.replace(torch, rows=torch.rows[1:])
    figure = layers_figure(msgspec.structs.replace(document, engines=[flux, torch, *others]))
    assert figure.data[1].x[0] is None


def test_overhead_is_points_and_the_fitted_line_from_zero() -> None:
    points, line, fixed = overhead_figure(OVERHEAD).data
    assert points.x == (1, 64)
    assert points.y == pytest.approx((2.1, 8.4))
    assert points.error_y.array == pytest.approx((0.2, 0.0))
    assert points.error_y.arrayminus == pytest.approx((0.1, 0.0))
    assert line.x == (0, 1, 64)
    assert line.y == pytest.approx((2.0, 2.1, 8.4))
    assert (fixed.x, fixed.y) == ((0,), (2.0,))
    assert fixed.error_y.array == pytest.approx((0.5,))


def test_without_plotly_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench\[plot\]', or use rows\(\)"):
        overhead_figure(OVERHEAD)
