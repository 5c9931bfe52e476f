"""Step times: in order, round by round, and their distribution in each process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from polybench.figures.figure import (
    Figure,
    NoData,
    Trace,
    TraceStyle,
    coordinates,
    escape_text,
    label_margin,
    log_axis,
    scatter,
    styles_for,
)
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

MAX_POINTS = 150
"""Maximum number of points that readers can distinguish on a curve."""
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Ends of whiskers, quartiles and median of a box."""
_GAP = 0.7
"""Rows between the boxes of configurations."""


def draw(study: StudyDocument) -> Figure:
    """Draw two panels: the first two steps of the cold start, and the timed steps."""
    measured = _with_times(study)
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
    name = result.configuration
    return [
        scatter(
            "lines+markers",
            [1, 2],
            seconds,
            scale=1e3,
            name=name,
            legendgroup=name,
            showlegend=False,
            marker=style.marker(9, "-open"),
            line=style.line(1.5),
            hovertemplate=f"{escape_text(name)}, step %{{x}}: %{{y:.4~g}} ms<extra></extra>",
        )
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
        rank = round(0.05 * (len(ordered) - 1))  # the nearest value; np.quantile takes over 30 times as long
        middle = (start + min(width, longest - start) / 2) * steps_per_value + 0.5
        bins.append(Bin(middle, median(map(median, parts)), ordered[rank], ordered[-1 - rank], rank == 0))
    return bins


def _timed_traces(result: Result, bins: Sequence[Bin], style: TraceStyle) -> list[Trace]:
    name = result.configuration
    steps = [one.middle for one in bins]
    shared: dict[str, Any] = {"scale": 1e3, "legendgroup": name, "xaxis": "x2", "yaxis": "y2"}
    band = scatter(
        "lines",
        [*steps, *reversed(steps)],
        [*(one.high for one in bins), *(one.low for one in reversed(bins))],
        fill="toself",
        fillcolor=style.lighten(0.18),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        **shared,
    )
    hover = f"{escape_text(name)}, step %{{x:.0f}}: %{{y:.4~g}} ms<extra></extra>"
    medians = [one.median for one in bins]
    return [band, scatter("lines", steps, medians, name=name, line=style.line(2), hovertemplate=hover, **shared)]


def _with_times(study: StudyDocument) -> list[Result]:
    measured = [result for result in study.results if result.nested_step_times]
    if not measured:
        raise NoData(f"study {study.id} has no times; measure some with polybench compare")
    return measured


def draw_distributions(study: StudyDocument) -> Figure:
    """Draw a box for each process of each configuration, which shows how much process runs differ."""
    measured = _with_times(study)
    styles = styles_for(result.configuration for result in study.results)
    traces: list[Trace] = []
    ticks: list[float] = []
    row = 0.0
    ends: list[float] = []
    for result in measured:
        quantiles = [
            1e3 * np.quantile([step_time for values in process for step_time in values], _QUANTILES)
            for process in result.nested_step_times
        ]
        rows = [row + number for number in range(len(quantiles))]
        traces.append(_boxes(result, rows, quantiles, styles[result.configuration]))
        ticks.append((rows[0] + rows[-1]) / 2)
        ends += [float(value) for one in quantiles for value in (one[0], one[-1])]
        row = rows[-1] + 1 + _GAP
    resolutions = {result.step_times.resolution for result in measured if result.step_times}
    blocks = " If an engine times blocks of steps, each value is a block mean." if "block" in resolutions else ""
    return Figure(
        title="Step times of each process",
        note=(
            "A box per process run, the first on top: median and quartiles of its timed steps, whiskers from"
            f" the 5th to the 95th percentile.{blocks}"
        ),
        traces=traces,
        layout={
            "xaxis": log_axis(ends) | {"title": {"text": "step time, ms"}},
            "yaxis": {
                "tickvals": ticks, "ticks": "",
                "ticktext": [escape_text(result.configuration) for result in measured],
                "range": [row - _GAP - 0.3, -0.7], "showgrid": False, "zeroline": False,
            },
            "showlegend": False,
            "margin": {"l": label_margin(result.configuration for result in measured), "r": 16},
        },
        height=round(100 + 20 * row),
    )  # fmt: skip


def _boxes(result: Result, rows: list[float], quantiles: Sequence[np.ndarray], style: TraceStyle) -> Trace:
    low, first, middle, third, high = (
        coordinates(float(one[number]) for one in quantiles) for number in range(len(_QUANTILES))
    )
    return {
        "type": "box", "orientation": "h", "name": escape_text(result.configuration), "y": rows,
        "lowerfence": low, "q1": first, "median": middle, "q3": third, "upperfence": high,
        "line": {"color": style.colour, "width": 1.5}, "fillcolor": style.lighten(0.25), "width": 0.7,
        "hoverinfo": "x+name",
    }  # fmt: skip
