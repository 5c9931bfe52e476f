"""Style of all figures: a plotly template and a sequence of trace styles.

The palette is safe for colour-blind readers (Okabe and Ito, "Color Universal Design", 2008). Its colours have
contrast on white paper and on dark screens, so grey replaces black, and yellow is omitted. Marks, dashes and
hatches also distinguish traces in black-and-white print.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808080")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "x", "triangle-down", "cross")
_HATCHES = ("", "/", ".", "x", "-", "\\", "|", "+")
NEUTRAL = "#808080"
"""Colour of reference lines, such as the line at 1."""

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


class TraceStyle(NamedTuple):
    """Style of a configuration in all figures of a document, or of an operation in stacked bars."""

    colour: str
    dash: str
    symbol: str
    hatch: str

    def lighten(self, opacity: float) -> str:
        """Return the colour with this opacity."""
        red, green, blue = (int(self.colour[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"

    @property
    def bar_marker(self) -> dict[str, Any]:
        """Describe the marker of a bar: the colour with a hatch."""
        return {
            "color": self.colour,
            "line": {"width": 0},
            "pattern": {
                "shape": self.hatch,
                "fillmode": "overlay",
                "fgcolor": "rgba(255,255,255,0.75)",
                "size": 7,
                "solidity": 0.25,
            },
        }


def style_for(number: int) -> TraceStyle:
    """Return the n-th style; the first 42 differ in colour or dashes."""

    def pick(values: tuple[str, ...]) -> str:
        return values[number % len(values)]

    return TraceStyle(pick(COLOURS), pick(_DASHES), pick(_SYMBOLS), pick(_HATCHES))


def styles_for(names: Iterable[str]) -> dict[str, TraceStyle]:
    """Assign a style to each name, in this order."""
    return {name: style_for(number) for number, name in enumerate(dict.fromkeys(names))}


def template(*, dark: bool = False) -> dict[str, Any]:
    """Create the plotly template, with a transparent background."""
    ink, faint, grid = ("#e6e8eb", "#a7adb5", "#343a42") if dark else ("#1b1f24", "#57606a", "#e3e6ea")
    axis = {
        "gridcolor": grid,
        "linecolor": faint,
        "zerolinecolor": grid,
        "tickcolor": faint,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickfont": {"color": ink, "size": 12},
        "title": {"font": {"color": faint, "size": 12}, "standoff": 12},
    }
    layout = {
        "font": {"family": FONT, "color": ink, "size": 12},
        "colorway": list(COLOURS),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": axis,
        "yaxis": axis,
        "bargap": 0.35,
        "hoverlabel": {
            "bgcolor": "#23272e" if dark else "#ffffff",
            "bordercolor": grid,
            "font": {"family": FONT, "color": ink, "size": 12},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"color": ink, "size": 12},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "annotationdefaults": {"font": {"color": faint, "size": 12}},
    }
    return {"layout": layout}
