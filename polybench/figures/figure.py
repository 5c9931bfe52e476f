"""Figures as data: title, note, and traces and layout for plotly.js, in one style.

An engine has the same colour in every figure; phases, operations and sources have palettes of their own. The
palettes maximize the smallest difference between two colours, also for colour-blind readers, at a contrast of at
least 3 on white paper and 4.5 on dark screens. Marks, dashes and hatches also distinguish traces in
black-and-white print.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from polybench.errors import BadInput
from polybench.schema.printable import printable

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
        numbers: the figure as text; empty if the tooltips of its marks are short enough for that.
    """

    title: str
    note: str
    traces: list[Trace]
    layout: dict[str, Any]
    height: int
    numbers: Sequence[str] = ()

    @property
    def text_alternative(self) -> list[str]:
        """List the numbers of the figure as plain text."""
        tooltips = (html.unescape(text) for trace in self.traces for text in trace.get("hovertext", ()) if text)
        return list(self.numbers or tooltips)


class NoData(BadInput):
    """Error for documents without the data of a figure; the message names the command that measures them."""


def escape_text(value: str) -> str:
    """Escape a name or title: control characters, and markup, because plotly interprets tags such as `<b>`."""
    return html.escape(printable(value), quote=False)


def round_coordinate(value: float) -> float:
    """Round to the visible digits."""
    return float(f"{value:.{_DIGITS}g}")


def coordinates(values: Iterable[Any], scale: float = 1.0) -> list[Any]:
    """Scale and round numbers, for example from seconds to ms; dates, labels and None stay as they are."""
    return [round_coordinate(scale * value) if isinstance(value, int | float) else value for value in values]


def scatter(
    mode: str,
    x: Iterable[Any],
    y: Iterable[Any],
    *,
    configuration: str | None = None,
    tooltips: Iterable[str] | None = None,
    scale: float = 1.0,
    **properties: Any,
) -> Trace:
    """Describe marks or lines, with scaled ordinates; escapes the texts.

    A trace of a `configuration` has its name in the legend, and a report hides it together with the
    configuration's row. Without `tooltips`, one for each point, a trace does not react to the pointer.
    """
    if configuration is not None:
        properties = {"name": configuration, "legendgroup": configuration, "meta": configuration} | properties
    names = {key: escape_text(properties[key]) for key in ("name", "legendgroup", "meta") if key in properties}
    hover = _hover(tooltips) if tooltips is not None else {"hoverinfo": "skip"}
    points = {"type": "scatter", "mode": mode, "x": coordinates(x), "y": coordinates(y, scale)}
    return points | properties | names | hover


def horizontal_bars(
    name: str,
    labels: Sequence[Any],
    lengths: Iterable[float | None],
    *,
    configurations: Iterable[str],
    tooltips: Iterable[str],
    style: dict[str, Any],
    **properties: Any,
) -> Trace:
    """Describe a bar for each label, which belongs to a configuration; escapes all texts but the labels."""
    return {
        "type": "bar", "orientation": "h", "name": escape_text(name), "y": labels, "x": list(lengths),
        "meta": list(map(escape_text, configurations)), "marker": style,
    } | _hover(tooltips) | properties  # fmt: skip


def _hover(tooltips: Iterable[str]) -> dict[str, Any]:
    return {"hovertext": list(map(escape_text, tooltips)), "hoverinfo": "text"}


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


_ENGINES = {
    "flux": "#3a98e6", "torch": "#d27920", "tf": "#007b60", "jax": "#c968a9", "keras": "#794400", "lux": "#6843a0",
}  # fmt: skip
_OTHER_ENGINES = "#6b6b6b"
PHASES = ("#001e21", "#003c40", "#165a5e", "#3b7a7e", "#5b9a9d")
OPERATIONS = ("#233853", "#9f8665", "#5d7253", "#725976", "#483917", "#699ca1", "#6b443e", "#7d789d")
SOURCES = ("#582f36", "#81555b", "#ad7d84")
NEUTRAL = "#808080"
"""Colour of reference lines, such as the line at 1."""
PAPER, DARK_PAPER = "#ffffff", "#14171b"

DARK_COLOURS = dict(
    zip(
        (*_ENGINES.values(), _OTHER_ENGINES, *PHASES, *OPERATIONS, *SOURCES, NEUTRAL, PAPER),
        (
            *("#a5ceff", "#f3a462", "#8df8c3", "#be648d", "#ab7e0b", "#7d94e6", "#b0b0b0"),
            *("#4d8c8f", "#69a8ab", "#85c4c8", "#a1e2e5", "#bdfeff"),
            *("#6a90a8", "#d3b997", "#bedebe", "#f7ddff", "#a0966f", "#7db0b7", "#a07577", "#c3bde4"),
            *("#a7777e", "#d4a2a8", "#ffced5", "#a7adb5", DARK_PAPER),
        ),
        strict=True,
    )
)
"""Colours that replace those of traces on dark screens."""

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "x", "triangle-down", "cross")
_HATCHES = ("", "/", ".", "x", "-", "\\", "|", "+")
HOLLOW = "Hollow marks: cannot tell."
"""The only meaning of a hollow mark, for the notes of figures with one."""

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


class TraceStyle(NamedTuple):
    """Style of a configuration in all figures of a document."""

    colour: str
    dash: str
    symbol: str

    @property
    def light_colour(self) -> str:
        """The colour of areas, a quarter opaque."""
        return f"{self.colour}40"

    def line(self, width: float) -> dict[str, Any]:
        """Describe a line with this colour and dash."""
        return {"color": self.colour, "dash": self.dash, "width": width}

    def marker(self, size: int, *, hollow: Sequence[bool] = ()) -> dict[str, Any]:
        """Describe markers with this colour and symbol, hollow for each point that is inconclusive."""
        symbols = [self.symbol + "-open" * one for one in hollow] or self.symbol
        line = {"color": self.colour, "width": 2 if any(hollow) else 0}
        return {"color": self.colour, "symbol": symbols, "size": size, "line": line}


def engine_colour(configuration: str) -> str:
    """Return the colour of a configuration's engine; all other engines share one."""
    engine = re.split(r"[^a-z0-9]", configuration, maxsplit=1)[0]
    return _ENGINES.get(engine, _OTHER_ENGINES)


def style_for(number: int, configuration: str) -> TraceStyle:
    """Return the colour of the configuration's engine, with the n-th dashes and symbol."""
    return TraceStyle(engine_colour(configuration), _DASHES[number % len(_DASHES)], _SYMBOLS[number % len(_SYMBOLS)])


def styles_for(configurations: Iterable[str]) -> dict[str, TraceStyle]:
    """Assign a style to each configuration, in this order."""
    return {name: style_for(number, name) for number, name in enumerate(dict.fromkeys(configurations))}


def bar_style(palette: Sequence[str], number: int) -> dict[str, Any]:
    """Describe the marker of bars: the n-th colour of the palette, with a hatch."""
    return {
        "color": palette[number % len(palette)],
        "line": {"width": 0},
        "pattern": {
            "shape": _HATCHES[number % len(_HATCHES)],
            "fillmode": "overlay",
            "fgcolor": f"{PAPER}bf",
            "size": 7,
            "solidity": 0.25,
        },
    }


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
        "tickangle": 0,
        "title": {"font": {"color": faint, "size": 12}, "standoff": 12},
    }
    layout = {
        "font": {"family": FONT, "color": ink, "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": axis,
        "yaxis": axis,
        "bargap": 0.35,
        "hoverlabel": {
            "bgcolor": "#23272e" if dark else "#ffffff",
            "bordercolor": grid,
            "font": {"family": FONT, "color": ink, "size": 12},
            "align": "left",
            "namelength": -1,
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
