"""A figure as data: what plotly.js draws, what it is called, and how it is to be read."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput

Trace = dict[str, Any]
Interval = tuple[float, float]

_DIGITS = 6
"""Of a coordinate: more than a screen or a page shows."""

_TICKS = 4
"""Of a logarithmic axis, at least: fewer tell nothing of the scale."""


class Plot(NamedTuple):
    """One figure. Texts of traces and layout are plotly's, which reads some HTML in them: see `text`.

    Attributes:
        title: plain text.
        note: what its marks and intervals are; plain text.
        traces: of plotly.js, as dictionaries.
        layout: the same, without title, size and style.
        height: px, at a width of 900.
    """

    title: str
    note: str
    traces: list[Trace]
    layout: dict[str, Any]
    height: int


class NothingToDraw(BadInput):
    """The document has nothing that the figure could show; the message says what measures it."""


def timed(study: StudyDocument) -> list[Result]:
    """The results with times; raises NothingToDraw where there is none."""
    measured = [result for result in study.results if result.steps]
    if not measured:
        raise NothingToDraw(f"study {study.id} has no times; polybench compare measures some")
    return measured


def text(value: str) -> str:
    """Names and titles from elsewhere are shown as they are: plotly reads `<b>` and the like."""
    return html.escape(value, quote=False)


def rounded(value: float) -> float:
    """With as many digits as can be seen."""
    return float(f"{value:.{_DIGITS}g}")


def error_bars(values: Sequence[float], intervals: Sequence[Interval | None]) -> dict[str, Any]:
    """From each value to both ends of its interval; none where there is no interval."""
    ends = [
        (0.0, 0.0) if interval is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(values, intervals, strict=True)
    ]
    return {
        "type": "data",
        "symmetric": False,
        "array": [rounded(max(above, 0.0)) for above, _ in ends],
        "arrayminus": [rounded(max(below, 0.0)) for _, below in ends],
        "thickness": 1.5,
        "width": 5,
    }


def log_axis(values: Iterable[float], *, room: float = 1.15) -> dict[str, Any]:
    """A logarithmic axis over these values, labelled with round numbers.

    Args:
        values: above 0, at least one.
        room: by how much it is longer, at both ends.
    """
    known = list(values)
    low, high = min(known) / room, max(known) * room
    shown = _ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": shown,
        "ticktext": [f"{tick:,.6g}" for tick in shown],
    }


def _ticks(low: float, high: float) -> list[float]:
    """Four or more: the roundest numbers of each decade that are enough, or else even steps."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = [rounded(digit * 10.0**decade) for decade in decades for digit in digits]
        if len(shown := [tick for tick in ticks if low <= tick <= high]) >= _TICKS:
            return shown
    smallest = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(
        step for digit in (5, 2, 1) if (high - low) / (step := digit * smallest) >= _TICKS or digit == 1
    )
    return [rounded(number * step) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def left_margin(labels: Iterable[str]) -> int:
    """px that these labels of rows take."""
    return 26 + math.ceil(6.6 * max((len(label) for label in labels), default=0))
