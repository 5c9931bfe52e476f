"""Step times in order: the first steps of a process, then every timed step, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from polybench.figures.figure import (
    Figure,
    Trace,
    escape_text,
    log_axis,
    results_with_times,
    round_coordinate,
)
from polybench.figures.style import TraceStyle, styles_for
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

MAX_POINTS = 150
"""Maximum number of points that readers can distinguish on a curve."""


def draw(study: StudyDocument) -> Figure:
    """Draw two panels: the first two steps of the cold start, and the timed steps.

    Raises:
        NoData: the study contains no times.
    """
    measured = results_with_times(study)
    styles = styles_for(result.configuration for result in study.results)
    curves = [(result, _bins(result)) for result in measured]
    traces = [
        trace
        for result, bins in curves
        for trace in (
            *_warm_up_traces(result, styles[result.configuration]),
            *_timed_traces(result, bins, styles[result.configuration]),
        )
    ]
    all_bins = [one for _, bins in curves for one in bins]
    timed_ms = [1e3 * value for one in all_bins for value in (one.median, one.low, one.high)]
    warm_up_ms = [1e3 * value for result in measured for value in _first_steps(result) if value > 0]
    return Figure(
        title="Step times in order",
        note=(
            "Left: the first two steps of a process, including compilation, tracing and autotuning (medians"
            f" over processes). Right: timed steps, medians over processes and {_band_text(all_bins)}. The"
            " panels have different scales. Untimed warm-up steps precede every round."
        ),
        traces=traces,
        layout={
            "xaxis": {
                "domain": [0, 0.16], "tickvals": [1, 2], "ticktext": ["1st", "2nd"], "range": [0.5, 2.5],
                "title": {"text": "warm-up"},
            },
            "xaxis2": {"domain": [0.25, 1], "title": {"text": "timed step of a process"}, "anchor": "y2"},
            "yaxis": log_axis(warm_up_ms or timed_ms) | {"title": {"text": "step time, ms"}},
            "yaxis2": log_axis(timed_ms) | {"anchor": "x2"},
            "margin": {"l": 64, "r": 16},
        },
        height=430,
    )  # fmt: skip


def _first_steps(result: Result) -> list[float]:
    """Return the seconds of the first two steps of a process."""
    startup = result.startup
    return [startup.first_step_seconds, startup.second_step_seconds] if startup else []


def _warm_up_traces(result: Result, style: TraceStyle) -> list[Trace]:
    seconds = _first_steps(result)
    if not all(value > 0 for value in seconds):
        return []
    name = escape_text(result.configuration)
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "legendgroup": name,
            "showlegend": False,
            "x": [1, 2],
            "y": [round_coordinate(1e3 * value) for value in seconds],
            "marker": {"symbol": f"{style.symbol}-open", "size": 9, "color": style.colour},
            "line": {"color": style.colour, "dash": style.dash, "width": 1.5},
            "hovertemplate": f"{name}, step %{{x}}: %{{y:.4~g}} ms<extra></extra>",
        }
    ]


class Bin(NamedTuple):
    """Consecutive steps of all processes: number of the middle step, median seconds, and a band."""

    middle: float
    median: float
    low: float
    high: float
    is_full_range: bool
    """True if the band contains all step times, because they are too few for quantiles."""


def _band_text(bins: Iterable[Bin]) -> str:
    kinds = {one.is_full_range for one in bins}
    if kinds == {True}:
        return "bands of the full range"
    return "bands from 5% to 95%" + (" (full range for few values)" if True in kinds else "")


def _bins(result: Result) -> list[Bin]:
    """Combine steps into at most MAX_POINTS bins, each over the same steps of all processes."""
    assert result.step_times is not None
    steps_per_value = result.step_times.steps_per_value
    processes = [[value for values in process for value in values] for process in result.nested_step_times]
    longest = max(map(len, processes))
    width = -(-longest // MAX_POINTS)
    bins = []
    for start in range(0, longest, width):
        parts = [part for process in processes if (part := process[start : start + width])]
        ordered = sorted(value for part in parts for value in part)
        middle = (start + min(width, longest - start) / 2) * steps_per_value + 0.5
        low, high = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
        is_full_range = _quantile_index(len(ordered), 0.05) == 0
        bins.append(Bin(middle, median(map(median, parts)), low, high, is_full_range))
    return bins


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the nearest value to a quantile; with few values, an extreme one."""
    return ordered[_quantile_index(len(ordered), fraction)]


def _quantile_index(count: int, fraction: float) -> int:
    return round(fraction * (count - 1))


def _timed_traces(result: Result, bins: Sequence[Bin], style: TraceStyle) -> list[Trace]:
    name = escape_text(result.configuration)
    steps = [round_coordinate(one.middle) for one in bins]
    low = [round_coordinate(1e3 * one.low) for one in bins]
    high = [round_coordinate(1e3 * one.high) for one in bins]
    shared = {"legendgroup": name, "xaxis": "x2", "yaxis": "y2", "type": "scatter"}
    return [
        shared
        | {
            "x": [*steps, *reversed(steps)],
            "y": [*high, *reversed(low)],
            "fill": "toself",
            "fillcolor": style.lighten(0.18),
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "showlegend": False,
        },
        shared
        | {
            "name": name,
            "x": steps,
            "y": [round_coordinate(1e3 * one.median) for one in bins],
            "mode": "lines",
            "line": {"color": style.colour, "dash": style.dash, "width": 2},
            "hovertemplate": f"{name}, step %{{x:.0f}}: %{{y:.4~g}} ms<extra></extra>",
        },
    ]
