"""Figures as data: title, note, and traces and layout for plotly.js, in one style.

The palette is safe for colour-blind readers (Okabe and Ito, "Color Universal Design", 2008). Its colours have
contrast on white paper and on dark screens, so grey replaces black, and yellow is omitted. Marks, dashes and
hatches also distinguish traces in black-and-white print.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from polybench.errors import BadInput

Trace = dict[str, Any]
Interval = tuple[float, float]

_DIGITS = 6
"""Significant digits of a coordinate, beyond the resolution of screens and paper."""

_MIN_TICKS = 4
"""Minimum for a logarithmic axis, so that readers recognise its scale."""


class Figure(NamedTuple):
    """Description of a figure. Texts in traces and layout must pass through `escape_text`.

    Attributes:
        title: plain text.
        note: explanation of marks and intervals; plain text.
        traces: traces of plotly.js.
        layout: layout of plotly.js, without title, size and style.
        height: in pixels, at a width of 900.
    """

    title: str
    note: str
    traces: list[Trace]
    layout: dict[str, Any]
    height: int


class NoData(BadInput):
    """Error for documents without the data of a figure; the message names the command that measures them."""


def escape_text(value: str) -> str:
    """Escape a name or title, because plotly interprets tags such as `<b>`."""
    return html.escape(value, quote=False)


def round_coordinate(value: float) -> float:
    """Round to the visible digits."""
    return float(f"{value:.{_DIGITS}g}")


def coordinates(values: Iterable[Any], scale: float = 1.0) -> list[Any]:
    """Scale and round numbers, for example from seconds to ms; dates, labels and None stay as they are."""
    return [round_coordinate(scale * value) if isinstance(value, int | float) else value for value in values]


def scatter(mode: str, x: Iterable[Any], y: Iterable[Any], *, scale: float = 1.0, **properties: Any) -> Trace:
    """Describe marks or lines, with scaled ordinates; escapes the names."""
    names = {key: escape_text(properties[key]) for key in ("name", "legendgroup") if key in properties}
    return {"type": "scatter", "mode": mode, "x": coordinates(x), "y": coordinates(y, scale)} | properties | names


def horizontal_bars(
    name: str, labels: Sequence[Any], lengths: Iterable[float | None], number: int, **properties: Any
) -> Trace:
    """Describe a bar for each label, with the n-th colour and hatch; escapes the name."""
    return {
        "type": "bar", "orientation": "h", "name": escape_text(name), "y": labels, "x": list(lengths),
        "marker": style_for(number).bar_marker,
    } | properties  # fmt: skip


def error_bars(values: Sequence[float], intervals: Sequence[Interval | None], scale: float = 1.0) -> dict[str, Any]:
    """Draw bars from each value to both ends of its interval; of length 0 without an interval."""
    ends = [
        (0.0, 0.0) if interval is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(values, intervals, strict=True)
    ]
    return {
        "type": "data",
        "symmetric": False,
        "array": coordinates((max(above, 0.0) for above, _ in ends), scale),
        "arrayminus": coordinates((max(below, 0.0) for _, below in ends), scale),
        "thickness": 1.5,
        "width": 5,
    }


def log_axis(values: Iterable[float], *, padding: float = 1.15) -> dict[str, Any]:
    """Describe a logarithmic axis over these values, labelled with round numbers.

    Args:
        values: at least one, all positive.
        padding: factor by which the axis extends beyond the values at both ends.
    """
    values = list(values)
    low, high = min(values) / padding, max(values) * padding
    ticks = _ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.6g}" for tick in ticks],
    }


def _ticks(low: float, high: float) -> list[float]:
    """Choose at least four ticks: the roundest numbers of each decade, or else evenly spaced ones."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = [round_coordinate(digit * 10.0**decade) for decade in decades for digit in digits]
        if len(visible := [tick for tick in ticks if low <= tick <= high]) >= _MIN_TICKS:
            return visible
    smallest = 10.0 ** math.floor(math.log10((high - low) / _MIN_TICKS))
    step = next(step for digit in (5, 2, 1) if (high - low) / (step := digit * smallest) >= _MIN_TICKS or digit == 1)
    return [round_coordinate(number * step) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def label_margin(labels: Iterable[str]) -> int:
    """Estimate the width of row labels in pixels."""
    return 26 + math.ceil(6.6 * max((len(label) for label in labels), default=0))


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

    def line(self, width: float) -> dict[str, Any]:
        """Describe a line with this colour and dash."""
        return {"color": self.colour, "dash": self.dash, "width": width}

    def marker(self, size: int, suffix: str = "") -> dict[str, Any]:
        """Describe a marker with this colour and symbol; the suffix -open makes it hollow."""
        return {"color": self.colour, "symbol": self.symbol + suffix, "size": size}

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
