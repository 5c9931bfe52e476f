"""A figure with its title and caption as a file, or as plotly's Figure."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

from polybench.core.errors import BadInput, Unavailable
from polybench.core.names import pick
from polybench.plots.plot import Plot, text
from polybench.plots.style import template

WIDTH = 900
"""px; with SCALE, 3 px a point of a column of 7 inches."""
SCALE = 2.5

SUFFIXES = ("svg", "png", "pdf", "html")

_LINE = 15
_CAPTION_CHARACTERS = 172
"""Of the caption's size that fit into WIDTH."""
_BELOW = 62
"""px from the axis to the caption: ticks, their labels, the axis title."""


def figure(plot: Plot, caption: str = "") -> Any:
    """A plotly Figure with its title above and the caption below: how to read it, and where it is from.

    Raises:
        BadInput: plotly is not installed.
    """
    lines = [line for part in (plot.note, caption) if part for line in wrap(part, _CAPTION_CHARACTERS)]
    given = plot.layout.get("margin", {})
    legend = _legend_lines(plot)
    margin = {"l": 64, "r": 24, "t": 52 + 22 * legend, "b": _BELOW + _LINE * len(lines) + 10} | given
    layout = plot.layout | {
        "template": _on_paper(),
        "title": {
            "text": f"<b>{text(plot.title)}</b>", "font": {"size": 17}, "xref": "container", "x": 14 / WIDTH,
            "xanchor": "left", "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 14},
        },
        "margin": margin,
        "height": plot.height + _LINE * len(lines) + 22 * legend,
        "width": WIDTH,
        "annotations": [
            *plot.layout.get("annotations", []),
            {
                "text": "<br>".join(map(text, lines)), "align": "left", "showarrow": False,
                "xref": "paper", "x": 0, "xanchor": "left", "xshift": 14 - margin["l"],
                "yref": "paper", "y": 0, "yanchor": "top", "yshift": -_BELOW, "font": {"size": 11},
            },
        ],
    }  # fmt: skip
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise BadInput("plotly is not installed; pip install 'polybench[plot]', or use rows()") from error
    return graph_objects.Figure(plot.traces, layout)


def suffix_of(path: Path) -> str:
    """What kind of file it is to be.

    Raises:
        BadInput: none of SUFFIXES.
    """
    return pick(path.suffix.removeprefix(".").lower(), {one: one for one in SUFFIXES}, "kind of file")


def content(plot: Plot, caption: str, suffix: str) -> bytes:
    """A file of the figure; html needs no browser to be made, and no network when it is read.

    Args:
        plot: the figure.
        caption: below it, after how it is to be read.
        suffix: one of SUFFIXES.

    Raises:
        BadInput: plotly is not installed.
        Unavailable: what draws it outside of a browser is not there.
    """
    drawn = figure(plot, caption)
    if suffix == "html":
        page: str = drawn.to_html(include_plotlyjs=True, config={"displaylogo": False})
        return page.encode()
    return _image(drawn, suffix)


def _image(drawn: Any, suffix: str) -> bytes:
    try:
        import kaleido
        from choreographer.errors import BrowserFailedError, ChromeNotFoundError
    except ImportError as error:
        raise _unavailable(suffix, "kaleido is not installed", "pip install 'polybench[plot]'") from error
    try:
        image: bytes = kaleido.calc_fig_sync(drawn, opts={"format": suffix, "scale": SCALE})
    except ChromeNotFoundError as error:
        remedy = "install Chromium (apt install chromium), or set BROWSER_PATH to one"
        raise _unavailable(suffix, "there is no Chromium or Chrome", remedy) from error
    except (BrowserFailedError, TimeoutError) as error:
        remedy = "set BROWSER_PATH to one that does"
        raise _unavailable(suffix, "the browser does not start", remedy) from error
    return image


def _unavailable(suffix: str, reason: str, remedy: str) -> Unavailable:
    return Unavailable(f"cannot draw {suffix}: {reason}; {remedy}, or write .html, which needs none", remedy)


def _legend_lines(plot: Plot) -> int:
    """Of a legend above the figure, about."""
    if plot.layout.get("showlegend") is False:
        return 0
    above = (one for one in plot.traces if one.get("showlegend", True) and "legend" not in one)
    names = {str(one["name"]) for one in above if one.get("name")}
    room = WIDTH - sum(plot.layout.get("margin", {}).get(side, 64) for side in "lr")
    return -(-sum(46 + round(6.3 * len(name)) for name in names) // room) if len(names) > 1 else 0


def _on_paper() -> dict[str, Any]:
    paper = template()
    return {"layout": paper["layout"] | {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}}


def plotly_program() -> str:
    """plotly.js, of the version that the package plotly brings.

    Raises:
        BadInput: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise BadInput("plotly is not installed; pip install 'polybench[report]'") from error
    text: str = get_plotlyjs()
    return text
