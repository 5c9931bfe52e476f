"""Cold start by phase, and the number of steps after which a slower start breaks even."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polybench.figures.figure import (
    Figure,
    NoData,
    Trace,
    TraceStyle,
    coordinates,
    escape_text,
    horizontal_bars,
    label_margin,
    log_axis,
    scatter,
    styles_for,
)
from polybench.schema.metrics import METRICS
from polybench.schema.result import Result, Startup
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import steps_to_break_even

_PHASES = [
    METRICS[name] for name in ("process_start_time", "import_time", "build_time", "data_to_device_time", "first_step")
]
"""Phases of the cold start."""

_POINTS = 60
_LOWER_HEIGHT = 330
"""Height of the lower panel in pixels, including the title of the axis above it."""
_LOWER_FRACTION = 0.72
"""Fraction of the lower panel below that title and the legend of the lines."""


def draw(study: StudyDocument) -> Figure:
    """Draw stacked bars; below, the time since the start over steps, relative to the baseline.

    Two lines cross at the step at which the later start breaks even.
    """
    started = [result for result in study.results if result.startup]
    if not started:
        raise NoData(f"study {study.id} has no start times; measure some with polybench compare")
    names = [escape_text(result.configuration) for result in started]
    ranked = [result for result in started if result.is_ranked]
    bar_height = 60 + 30 * len(started)
    height = bar_height + 90 + (_LOWER_HEIGHT if len(ranked) > 1 else 0)
    # Margins take 90 pixels.
    bottom = 1 - bar_height / (height - 90) if len(ranked) > 1 else 0.0
    figure = Figure(
        title="Cold start",
        note="From process start to the end of the first step; medians over processes.",
        traces=_bars(started, names),
        layout={
            "barmode": "stack",
            "xaxis": {"title": {"text": "cold start, s"}, "anchor": "y", "rangemode": "tozero"},
            "yaxis": {
                "domain": [bottom, 1], "type": "category", "autorange": "reversed", "ticks": "",
                "showgrid": False, "categoryorder": "array", "categoryarray": names,
            },
            "margin": {"l": max(label_margin(names), 84), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=height,
    )  # fmt: skip
    return figure if len(ranked) < 2 else _with_break_even(figure, study, ranked, bottom)


def _with_break_even(figure: Figure, study: StudyDocument, ranked: Sequence[Result], bottom: float) -> Figure:
    styles = styles_for(result.configuration for result in study.results)
    baseline = next((one for one in ranked if one.configuration == study.settings.baseline), ranked[0])
    crossings = _crossings(ranked, baseline)
    slowest_start = max(_startup(result).cold_start_seconds for result in ranked)
    shortest_step = min(result.median_step_seconds for result in ranked)
    end = max(10.0 * max(crossings.values(), default=slowest_start / shortest_step), 10.0)
    lines = [
        trace
        for result in ranked
        for trace in _line(result, baseline, styles[result.configuration], end, crossings.get(result.configuration))
    ]
    return figure._replace(
        title="Cold start and break-even",
        note=(
            f"Above: {figure.note[:1].lower()}{figure.note[1:]} Below: time since process start, including"
            " the first step. Marks are break-even points with the baseline."
        ),
        traces=[*figure.traces, *lines],
        layout=figure.layout | _lower_panel(lines, baseline, end, bottom * _LOWER_FRACTION),
    )


def _bars(started: Sequence[Result], names: Sequence[str]) -> list[Trace]:
    return [
        horizontal_bars(
            phase.title,
            names,
            coordinates(phase.value(result) or 0.0 for result in started),
            number,
            hovertemplate=f"%{{y}}, {phase.title}: %{{x:.3~g}} s<extra></extra>",
        )
        for number, phase in enumerate(_PHASES)
    ]


def _startup(result: Result) -> Startup:
    assert result.startup is not None
    return result.startup


def _seconds_after(result: Result, steps: float) -> float:
    """Compute the seconds since process start; the cold start includes the first step."""
    return _startup(result).cold_start_seconds + (steps - 1) * result.median_step_seconds


def _crossings(ranked: Sequence[Result], baseline: Result) -> dict[str, int]:
    """Compute after how many steps each configuration and the baseline break even."""
    crossings = {}
    for result in ranked:
        later, earlier = sorted((result, baseline), key=lambda one: -_startup(one).cold_start_seconds)
        steps = steps_to_break_even(
            _startup(later).cold_start_seconds,
            later.median_step_seconds,
            _startup(earlier).cold_start_seconds,
            earlier.median_step_seconds,
        )
        if steps:
            crossings[result.configuration] = steps
    return crossings


def _line(result: Result, baseline: Result, style: TraceStyle, end: float, crossing: int | None) -> list[Trace]:
    name, baseline_name = escape_text(result.configuration), escape_text(baseline.configuration)
    shared = {"xaxis": "x2", "yaxis": "y2", "legend": "legend2", "name": name, "legendgroup": name}

    def ratios(steps: Sequence[float]) -> list[float]:
        return [_seconds_after(result, step) / _seconds_after(baseline, step) for step in steps]

    steps = [end ** (number / _POINTS) for number in range(_POINTS + 1)]
    hover = f"{name}, %{{x:,.0f}} steps: %{{y:.3~g}} times as long<extra></extra>"
    line = scatter("lines", steps, ratios(steps), line=style.line(2), hovertemplate=hover)
    if crossing is None:
        return [line | shared]
    hover = f"{name} and {baseline_name} break even after %{{x:,}} steps<extra></extra>"
    crossings = ratios([crossing])
    mark = scatter("markers", [crossing], crossings, showlegend=False, marker=style.marker(11), hovertemplate=hover)
    return [line | shared, mark | shared]


def _lower_panel(lines: Sequence[Trace], baseline: Result, end: float, top: float) -> dict[str, Any]:
    ratios = [value for trace in lines for value in trace["y"]]
    return {
        "xaxis2": log_axis([1.0, end], padding=1.0) | {"anchor": "y2", "title": {"text": "training steps"}},
        "yaxis2": log_axis(ratios)
        | {
            "anchor": "x2",
            "domain": [0, top],
            "title": {"text": f"time since process start,<br>relative to {escape_text(baseline.configuration)}"},
        },
        "legend2": {"orientation": "h", "y": top, "yanchor": "bottom", "x": 0},
    }
