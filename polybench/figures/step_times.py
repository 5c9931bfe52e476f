"""Step times: in order, round by round, and their distribution in each process."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from polybench.figures.figure import (
    Figure,
    NoData,
    Trace,
    TraceStyle,
    coordinates,
    engine_colour,
    escape_text,
    label_margin,
    log_axis,
    scatter,
    styles_for,
)
from polybench.schema import units
from polybench.schema.metrics import METRICS
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

MAX_POINTS = 150
"""Maximum number of points that readers can distinguish on a curve."""
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Ends of whiskers, quartiles and median of a box."""


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
        numbers=[_describe(result) for result in measured],
    )  # fmt: skip


def _describe(result: Result) -> str:
    seconds = [units.format_seconds(value) for value in _first_steps(result)]
    first = f"first steps {', '.join(seconds)}; " if seconds else ""
    return f"{result.configuration}: {first}timed steps {METRICS['step_time'].text(result)}"


def _quantiles(middle: float, low: float, high: float) -> str:
    return f"median {units.format_seconds(middle)}, 5% to 95% {units.format_range((low, high))}"


def _first_steps(result: Result) -> list[float]:
    """Return the seconds of the first two steps of a process."""
    startup = result.startup
    return [startup.first_step_seconds, startup.second_step_seconds] if startup else []


def _warm_up_traces(result: Result, style: TraceStyle) -> list[Trace]:
    seconds = _first_steps(result)
    if not seconds or not all(value > 0 for value in seconds):
        return []
    name = result.configuration
    return [
        scatter(
            "lines+markers",
            [1, 2],
            seconds,
            scale=1e3,
            configuration=name,
            tooltips=[
                f"{name}, {step} step: {units.format_seconds(value)}"
                for step, value in zip(("first", "second"), seconds, strict=True)
            ],
            showlegend=False,
            marker=style.marker(9),
            line=style.line(1.5),
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
    shared: dict[str, Any] = {"scale": 1e3, "configuration": name, "xaxis": "x2", "yaxis": "y2"}
    band = scatter(
        "lines",
        [*steps, *reversed(steps)],
        [*(one.high for one in bins), *(one.low for one in reversed(bins))],
        fill="toself",
        fillcolor=style.light_colour,
        line={"width": 0},
        showlegend=False,
        **shared,
    )
    tooltips = [
        f"{name}, step {one.middle:,.0f}: {units.format_seconds_with_ci(one.median, (one.low, one.high))}"
        for one in bins
    ]
    medians = [one.median for one in bins]
    return [band, scatter("lines", steps, medians, tooltips=tooltips, line=style.line(2), **shared)]


def _with_times(study: StudyDocument) -> list[Result]:
    measured = [result for result in study.results if result.nested_step_times]
    if not measured:
        raise NoData(f"study {study.id} has no times; measure some with polybench compare")
    return measured


def draw_distributions(study: StudyDocument) -> Figure:
    """Draw a box for each process of each configuration, which shows how much process runs differ."""
    measured = _with_times(study)
    traces: list[Trace] = []
    labels: dict[str, str] = {}
    ends: list[float] = []
    for result in measured:
        boxes = {
            f"{result.configuration}, process {number}": np.quantile([*itertools.chain(*process)], _QUANTILES).tolist()
            for number, process in enumerate(result.nested_step_times, start=1)
        }
        traces += _boxes(result.configuration, boxes)
        labels[list(boxes)[(len(boxes) - 1) // 2]] = result.configuration
        ends += [1e3 * end for box in boxes.values() for end in (box[0], box[-1])]
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
                "type": "category", "autorange": "reversed", "ticks": "", "showgrid": False,
                "tickvals": list(map(escape_text, labels)), "ticktext": list(map(escape_text, labels.values())),
            },
            "showlegend": False,
            "margin": {"l": label_margin(labels.values()), "r": 16},
        },
        height=100 + 10 * len(traces) + 20 * sum(len(result.nested_step_times) for result in measured),
    )  # fmt: skip


def _boxes(configuration: str, boxes: Mapping[str, list[float]]) -> Iterator[Trace]:
    """Draw the boxes in rows of these names. Invisible marks at their medians have one tooltip each."""
    rows, colour = list(map(escape_text, boxes)), engine_colour(configuration)
    low, first, middle, third, high = (coordinates(values, 1e3) for values in zip(*boxes.values(), strict=True))
    yield {
        "type": "box", "orientation": "h", "name": escape_text(configuration), "meta": escape_text(configuration),
        "y": rows, "lowerfence": low, "q1": first, "median": middle, "q3": third, "upperfence": high,
        "line": {"color": colour, "width": 1.5}, "fillcolor": f"{colour}40", "width": 0.7, "hoverinfo": "skip",
    }  # fmt: skip
    tooltips = [
        f"{name}: {_quantiles(middle, low, high)}, quartiles {units.format_range((first, third))}"
        for name, (low, first, middle, third, high) in boxes.items()
    ]
    marker = {"opacity": 0, "size": 18}
    yield scatter("markers", middle, rows, configuration=configuration, tooltips=tooltips, marker=marker)
