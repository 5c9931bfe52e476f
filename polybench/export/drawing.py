"""What all figures have in common: the looks of cells, intervals, a caption.

plotly (extra `plot`) is imported here only, and when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from polybench.core import units
from polybench.core.document.circumstances import Host
from polybench.core.errors import BadInput

Interval = tuple[float, float]

GREY = "#666666"
"""Of what belongs to no cell."""

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
"""Told apart by the colour-blind too (Okabe and Ito, "Color Universal Design", 2008)."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_HATCHES = ("", "/", "x", ".", "-", "\\", "|")


class Look(NamedTuple):
    """Of one cell; marks, lines and bars differ in print without colours as well."""

    colour: str
    symbol: str
    dash: str
    hatch: str


def look(number: int) -> Look:
    """The n-th, from 0."""
    colour, symbol, dash, hatch = (
        several[number % len(several)] for several in (_COLOURS, _SYMBOLS, _DASHES, _HATCHES)
    )
    return Look(colour, symbol, dash, hatch)


def milliseconds(
    axis: str, seconds: Sequence[float | None], intervals: Sequence[Interval | None]
) -> dict[str, Any]:
    """As `with_intervals`, in ms."""
    return with_intervals(
        axis,
        [None if value is None else 1e3 * value for value in seconds],
        [interval and (1e3 * interval[0], 1e3 * interval[1]) for interval in intervals],
    )


def with_intervals(
    axis: str, values: Sequence[float | None], intervals: Sequence[Interval | None]
) -> dict[str, Any]:
    """Along an axis: values, and error bars to both ends of their intervals."""
    ends = [
        (0.0, 0.0) if value is None or interval is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(values, intervals, strict=True)
    ]
    return {
        axis: list(values),
        f"error_{axis}": {
            "type": "data",
            "symmetric": False,
            "array": [above for above, _ in ends],
            "arrayminus": [below for _, below in ends],
            "thickness": 1.2,
            "width": 3,
        },
    }


def caption(host: Host, created: str, threads: int | None = None, precision: str | None = None) -> str:
    """Where the numbers are from: machine, threads, precision and date; nothing that names a computer."""
    machine = ", ".join([host.cpu, units.plural(host.cores, "core"), *host.gpus])
    using = None if threads is None else units.plural(threads, "thread")
    return " · ".join(filter(None, (machine, using, precision, created.partition("T")[0])))


def layout(title: str, caption: str) -> dict[str, Any]:
    """Of every figure; the caption stands below its title."""
    return {
        "title": {
            "text": title, "subtitle": {"text": caption}, "yref": "container", "y": 1, "yanchor": "top",
            "pad": {"t": 16},
        },
        "template": "plotly_white",
        "showlegend": True,
        "margin": {"t": 80, "b": 50, "l": 60, "r": 20},
    }  # fmt: skip


def plotly() -> ModuleType:
    """Its graph objects; raises BadInput where it is not installed."""
    try:
        import plotly.graph_objects as module
    except ImportError as error:
        raise BadInput("plotly is not installed; pip install 'polybench[plot]', or use rows()") from error
    found: ModuleType = module
    return found
