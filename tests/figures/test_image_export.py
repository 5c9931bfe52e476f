"""Files of figures, and errors for missing dependencies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from polybench.errors import BadInput, EngineUnavailable
from polybench.figures import draw
from polybench.figures.figure import Figure
from polybench.figures.image_export import export, file_format, to_plotly
from tests.browser import chromium
from tests.figures.documents import full_study


@pytest.fixture(autouse=True)
def plotly() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")


@pytest.fixture
def figure() -> Figure:
    return draw("speed", full_study())


def test_plotly_figure_has_title_and_caption(figure: Figure) -> None:
    plotly_figure = to_plotly(figure, "Some CPU <i>")
    assert plotly_figure.layout.title.text == "<b>Speed relative to the baseline</b>"
    caption = plotly_figure.layout.annotations[-1].text
    assert caption.startswith("Above 1 is faster.")
    assert caption.endswith("Some CPU &lt;i&gt;")
    assert plotly_figure.layout.margin.b > 60
    assert len(plotly_figure.layout.annotations) == len(figure.layout["annotations"]) + 1


def test_html_is_self_contained(figure: Figure) -> None:
    page = export(figure, "", "html").decode()
    assert "Plotly.newPlot" in page
    assert "<script src=" not in page
    assert "cdn.plot.ly" not in page.partition("Plotly.newPlot")[2]


def test_browser_renders_svg(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", chromium())
    pytest.importorskip("kaleido", reason="kaleido is not installed")
    image = export(figure, "the caption", "svg").decode()
    assert image.startswith("<svg")
    assert all(word in image for word in ("tf/cpu", "Speed relative to the baseline", "the caption"))


def test_missing_browser_is_reported_with_the_fix(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido", reason="kaleido is not installed")
    monkeypatch.setenv("BROWSER_PATH", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        EngineUnavailable, match=r"cannot create png: .*BROWSER_PATH.* or write \.html instead"
    ) as caught:
        export(figure, "", "png")
    assert caught.value.exit_code == 4


def test_missing_kaleido_is_reported_with_the_fix(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(EngineUnavailable, match=r"kaleido is not installed; pip install 'polybench-dl\[plot\]'"):
        export(figure, "", "pdf")


def test_unknown_file_format_raises_bad_input() -> None:
    assert file_format(Path("a/b.SVG")) == "svg"
    with pytest.raises(BadInput, match="unknown format 'gif'"):
        file_format(Path("b.gif"))
