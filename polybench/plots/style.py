"""How all figures look, in print and on a screen: one template, one sequence of looks.

Colours are told apart by the colour-blind too (Okabe and Ito, "Color Universal Design", 2008), and stand
out from white paper as from a dark screen; so black became grey, and their yellow is left out. Where only
grey is printed, marks, dashes and hatches tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808080")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "x", "triangle-down", "cross")
_HATCHES = ("", "/", ".", "x", "-", "\\", "|", "+")
NEUTRAL = "#808080"
"""Of what belongs to no cell: the line at 1."""

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


class Look(NamedTuple):
    """Of one cell in all figures of a document, or of one part in a stack."""

    colour: str
    dash: str
    symbol: str
    hatch: str

    def faint(self, share: float) -> str:
        """The colour with this opacity."""
        red, green, blue = (int(self.colour[at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},{share})"

    @property
    def filled(self) -> dict[str, Any]:
        """The marker of a bar: the colour, hatched."""
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


def look(number: int) -> Look:
    """The n-th; the first 42 differ in colour or dashes."""

    def nth(several: tuple[str, ...]) -> str:
        return several[number % len(several)]

    return Look(nth(COLOURS), nth(_DASHES), nth(_SYMBOLS), nth(_HATCHES))


def looks(names: Iterable[str]) -> dict[str, Look]:
    """One for each name, in this order."""
    return {name: look(number) for number, name in enumerate(dict.fromkeys(names))}


def template(*, dark: bool = False) -> dict[str, Any]:
    """The template of plotly; its background is nothing, so that a page or a sheet shows through."""
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
