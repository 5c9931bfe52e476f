"""Time since process start over training steps, relative to the baseline.

Two lines cross at the step at which the later start breaks even.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polybench.figures.figure import Figure, NoData, Trace, TraceStyle, escape_text, log_axis, scatter, styles_for
from polybench.schema.result import Result, Startup
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import steps_to_break_even

_POINTS = 60


def draw(study: StudyDocument) -> Figure:
    """Draw a line for each ranked configuration, and a mark where it breaks even with the baseline."""
    ranked = [result for result in study.results if result.startup and result.is_ranked]
    if len(ranked) < 2:
        raise NoData(
            f"study {study.id} has no two start times to compare; measure them in one study:"
            " polybench compare --engines torch,tf"
        )
    styles = styles_for(result.configuration for result in study.results)
    baseline = next((one for one in ranked if one.configuration == study.settings.baseline), ranked[0])
    crossings = {result.configuration: steps for result in ranked if (steps := _steps_to_break_even(result, baseline))}
    slowest_start = max(_startup(result).cold_start_seconds for result in ranked)
    shortest_step = min(result.median_step_seconds for result in ranked)
    end = max(10.0 * max(crossings.values(), default=slowest_start / shortest_step), 10.0)
    traces = [
        trace
        for result in ranked
        for trace in _traces(result, baseline, styles[result.configuration], end, crossings.get(result.configuration))
    ]
    return Figure(
        title="Break-even of cold starts",
        note="Times are since process start, including the first step. Marks are break-even points with the baseline.",
        traces=traces,
        layout={
            "xaxis": log_axis([1.0, end], padding=1.0) | {"title": {"text": "training steps"}},
            "yaxis": log_axis(value for trace in traces for value in trace["y"])
            | {"title": {"text": f"time since process start,<br>relative to {escape_text(baseline.configuration)}"}},
            "margin": {"l": 84, "r": 24},
        },
        height=360,
    )


def _startup(result: Result) -> Startup:
    assert result.startup is not None
    return result.startup


def _steps_to_break_even(result: Result, baseline: Result) -> int | None:
    later, earlier = sorted((result, baseline), key=lambda one: -_startup(one).cold_start_seconds)
    return steps_to_break_even(
        _startup(later).cold_start_seconds,
        later.median_step_seconds,
        _startup(earlier).cold_start_seconds,
        earlier.median_step_seconds,
    )


def _seconds_after(result: Result, steps: float) -> float:
    """Compute the seconds since process start; the cold start includes the first step."""
    return _startup(result).cold_start_seconds + (steps - 1) * result.median_step_seconds


def _traces(result: Result, baseline: Result, style: TraceStyle, end: float, crossing: int | None) -> list[Trace]:
    name, baseline_name = escape_text(result.configuration), escape_text(baseline.configuration)

    def ratios(steps: Sequence[float]) -> list[float]:
        return [_seconds_after(result, step) / _seconds_after(baseline, step) for step in steps]

    def trace(mode: str, steps: Sequence[float], **properties: Any) -> Trace:
        shared: dict[str, Any] = {"name": result.configuration, "legendgroup": result.configuration}
        return scatter(mode, steps, ratios(steps), **shared, **properties)

    steps = [end ** (number / _POINTS) for number in range(_POINTS + 1)]
    hover = f"{name}, %{{x:,.0f}} steps: %{{y:.3~g}} times as long<extra></extra>"
    line = trace("lines", steps, line=style.line(2), hovertemplate=hover)
    if crossing is None:
        return [line]
    hover = f"{name} and {baseline_name} break even after %{{x:,}} steps<extra></extra>"
    return [line, trace("markers", [crossing], showlegend=False, marker=style.marker(11), hovertemplate=hover)]
