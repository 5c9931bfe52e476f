"""The cold start, part by part, and after how many steps a slower start is repaid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import Startup
from polybench.core.statistics import steps_to_break_even
from polybench.metrics.startup import LEDGER
from polybench.plots.plot import NothingToDraw, Plot, Trace, left_margin, log_axis, rounded, text
from polybench.plots.style import Look, look, looks

_PARTS = LEDGER[:-1]
"""The second step is no part of the start."""

_POINTS = 60
_LOWER = 330
"""px of the lower panel, with the title of the axis above it."""
_SHARE_OF_LOWER = 0.72
"""The rest are that title and the legend of the lines."""


def draw(study: StudyDocument) -> Plot:
    """Stacked bars above; below, the time since the start over steps, relative to the baseline's.

    Lines of two cells cross where the one that started later has caught up.

    Raises:
        NothingToDraw: no start was timed.
    """
    started = [result for result in study.results if result.startup]
    if not started:
        raise NothingToDraw(f"study {study.id} has no start times; polybench compare measures some")
    names = [text(result.cell) for result in started]
    running = [result for result in started if result.ranked]
    bars = 60 + 30 * len(started)
    height = bars + 90 + (_LOWER if len(running) > 1 else 0)
    # Of what is left for panels beside the margins, what the bars need.
    bottom = 1 - bars / (height - 90) if len(running) > 1 else 0.0
    plot = Plot(
        title="Cold start",
        note="From starting a process to the end of its first step: medians over processes.",
        traces=_bars(started, names),
        layout={
            "barmode": "stack",
            "xaxis": {"title": {"text": "s of cold start"}, "anchor": "y", "rangemode": "tozero"},
            "yaxis": {
                "domain": [bottom, 1], "type": "category", "autorange": "reversed", "ticks": "",
                "showgrid": False, "categoryorder": "array", "categoryarray": names,
            },
            "margin": {"l": max(left_margin(names), 84), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=height,
    )  # fmt: skip
    return plot if len(running) < 2 else _with_break_even(plot, study, running, bottom)


def _with_break_even(plot: Plot, study: StudyDocument, running: Sequence[Result], bottom: float) -> Plot:
    styles = looks(result.cell for result in study.results)
    baseline = next((one for one in running if one.cell == study.settings.baseline), running[0])
    crossings = _crossings(running, baseline)
    slowest = max(_starting(result).total_seconds for result in running)
    end = 10.0 * max(crossings.values(), default=slowest / min(one.typical_seconds for one in running))
    below = [
        trace
        for result in running
        for trace in _line(result, baseline, styles[result.cell], max(end, 10.0), crossings.get(result.cell))
    ]
    lower = _lower_panel(below, baseline, max(end, 10.0), bottom * _SHARE_OF_LOWER)
    return plot._replace(
        title="Cold start, and when it is repaid",
        note=(
            f"Above: {plot.note[:1].lower()}{plot.note[1:]} Below: time since the start, first"
            " step included; where"
            " two lines cross, the later start is repaid, and marks are where a line crosses the baseline's."
        ),
        traces=[*plot.traces, *below],
        layout=plot.layout | lower,
    )


def _bars(started: Sequence[Result], names: Sequence[str]) -> list[Trace]:
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": part.title,
            "y": names,
            "x": [rounded(float(part.value(result) or 0.0)) for result in started],
            "marker": look(number).filled,
            "hovertemplate": f"%{{y}}, {part.title}: %{{x:.3~g}} s<extra></extra>",
        }
        for number, part in enumerate(_PARTS)
    ]


def _starting(result: Result) -> Startup:
    assert result.startup is not None
    return result.startup


def _after(result: Result, steps: float) -> float:
    """Seconds since the process was started; the first step is in the start."""
    return _starting(result).total_seconds + (steps - 1) * result.typical_seconds


def _crossings(running: Sequence[Result], baseline: Result) -> dict[str, int]:
    """After how many steps the one of each cell and the baseline that starts later has caught up."""
    found = {}
    for result in running:
        one, other = sorted((result, baseline), key=lambda each: -_starting(each).total_seconds)
        steps = steps_to_break_even(
            _starting(one).total_seconds,
            one.typical_seconds,
            _starting(other).total_seconds,
            other.typical_seconds,
        )
        if steps:
            found[result.cell] = steps
    return found


def _line(result: Result, baseline: Result, style: Look, end: float, crossing: int | None) -> list[Trace]:
    steps = [end ** (number / _POINTS) for number in range(_POINTS + 1)]
    name = text(result.cell)
    shared = {"type": "scatter", "xaxis": "x2", "yaxis": "y2", "legend": "legend2", "name": name}
    shared["legendgroup"] = name
    line: Trace = shared | {
        "mode": "lines",
        "x": [rounded(one) for one in steps],
        "y": [rounded(_after(result, one) / _after(baseline, one)) for one in steps],
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "hovertemplate": f"{name}, %{{x:,.0f}} steps: %{{y:.3~g}} times as long<extra></extra>",
    }
    if crossing is None:
        return [line]
    mark: Trace = shared | {
        "showlegend": False,
        "mode": "markers",
        "x": [crossing],
        "y": [rounded(_after(result, crossing) / _after(baseline, crossing))],
        "marker": {"color": style.colour, "symbol": style.symbol, "size": 11},
        "hovertemplate": f"{name} and {text(baseline.cell)} are level after %{{x:,}} steps<extra></extra>",
    }
    return [line, mark]


def _lower_panel(below: Sequence[Trace], baseline: Result, end: float, top: float) -> dict[str, Any]:
    ratios = [value for trace in below for value in trace["y"]]
    return {
        "xaxis2": log_axis([1.0, end], room=1.0) | {"anchor": "y2", "title": {"text": "training steps"}},
        "yaxis2": log_axis(ratios)
        | {
            "anchor": "x2",
            "domain": [0, top],
            "title": {"text": f"time since the start,<br>relative to {text(baseline.cell)}"},
        },
        "legend2": {"orientation": "h", "y": top, "yanchor": "bottom", "x": 0},
    }
