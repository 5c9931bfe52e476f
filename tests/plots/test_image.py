"""Files of figures: what is in them, and what is said where one cannot be drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from polybench.core.errors import BadInput, Unavailable
from polybench.plots import draw
from polybench.plots.image import content, figure, suffix_of
from polybench.plots.plot import Plot
from tests.browser import chromium
from tests.plots.documents import full_study


@pytest.fixture(autouse=True)
def plotly() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")


@pytest.fixture
def plot() -> Plot:
    return draw("speed", full_study())


def test_a_figure_has_its_title_above_and_its_caption_below(plot: Plot) -> None:
    drawn = figure(plot, "Some CPU <i>")
    assert drawn.layout.title.text == "<b>Speed relative to the baseline</b>"
    caption = drawn.layout.annotations[-1].text
    assert caption.startswith("Above 1 is faster.")
    assert caption.endswith("Some CPU &lt;i&gt;")
    assert drawn.layout.margin.b > 60
    assert len(drawn.layout.annotations) == len(plot.layout["annotations"]) + 1


def test_html_asks_nobody_for_anything(plot: Plot) -> None:
    page = content(plot, "", "html").decode()
    assert "Plotly.newPlot" in page
    assert "<script src=" not in page
    assert "cdn.plot.ly" not in page.partition("Plotly.newPlot")[2]


def test_svg_is_drawn_by_a_browser(plot: Plot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", chromium())
    pytest.importorskip("kaleido", reason="kaleido is not installed")
    image = content(plot, "the caption", "svg").decode()
    assert image.startswith("<svg")
    assert all(word in image for word in ("tf/cpu", "Speed relative to the baseline", "the caption"))


def test_without_a_browser_it_says_what_to_install(plot: Plot, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido", reason="kaleido is not installed")
    monkeypatch.setenv("BROWSER_PATH", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"cannot draw png: .*BROWSER_PATH.*, or write \.html") as caught:
        content(plot, "", "png")
    assert caught.value.exit_code == 4


def test_without_kaleido_it_says_what_to_install(plot: Plot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(Unavailable, match=r"kaleido is not installed; pip install 'polybench\[plot\]'"):
        content(plot, "", "pdf")


def test_a_file_of_another_kind_is_bad_input() -> None:
    assert suffix_of(Path("a/b.SVG")) == "svg"
    with pytest.raises(BadInput, match="unknown kind of file 'gif'"):
        suffix_of(Path("b.gif"))
