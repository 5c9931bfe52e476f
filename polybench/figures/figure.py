"""Figures as data: title, note, and traces and layout for plotly.js."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from polybench.errors import BadInput
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

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


def results_with_times(study: StudyDocument) -> list[Result]:
    """Select the results with times; raises NoData without any."""
    measured = [result for result in study.results if result.nested_step_times]
    if not measured:
        raise NoData(f"study {study.id} has no times; measure some with polybench compare")
    return measured


def escape_text(value: str) -> str:
    """Escape a name or title, because plotly interprets tags such as `<b>`."""
    return html.escape(value, quote=False)


def round_coordinate(value: float) -> float:
    """Round to the visible digits."""
    return float(f"{value:.{_DIGITS}g}")


def error_bars(values: Sequence[float], intervals: Sequence[Interval | None]) -> dict[str, Any]:
    """Draw bars from each value to both ends of its interval; of length 0 without an interval."""
    ends = [
        (0.0, 0.0) if interval is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(values, intervals, strict=True)
    ]
    return {
        "type": "data",
        "symmetric": False,
        "array": [round_coordinate(max(above, 0.0)) for above, _ in ends],
        "arrayminus": [round_coordinate(max(below, 0.0)) for _, below in ends],
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
