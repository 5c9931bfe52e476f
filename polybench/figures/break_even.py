"""Time since process start over training steps, relative to the baseline.

Two lines cross at the step at which the later start breaks even.
"""

from __future__ import annotations

from polybench.figures.figure import Figure, NoData, Trace, TraceStyle, escape_text, log_axis, scatter, styles_for
from polybench.schema import units
from polybench.schema.result import ColdStart, Result
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import steps_to_break_even

_POINTS = 60


def draw(study: StudyDocument) -> Figure:
    """Draw a line for each configuration with a verdict, and a mark where it breaks even with the baseline."""
    started = [result for result in study.results if result.startup and result.is_ranked]
    baseline = next((one for one in started if one.configuration == study.settings.baseline), None)
    inconclusive = [one.configuration for one in started if one is not baseline and _is_inconclusive(one)]
    ranked = [result for result in started if result.configuration not in inconclusive]
    if len(ranked) < 2 or baseline is None:
        raise NoData(
            f"study {study.id} has no two start times to compare with a verdict; measure them in one study:"
            " polybench compare --engines torch,tf"
        )
    styles = styles_for(result.configuration for result in study.results)
    crossings = {result.configuration: steps for result in ranked if (steps := _steps_to_break_even(result, baseline))}
    slowest_start = max(_startup(result).cold_start_seconds for result in ranked)
    shortest_step = min(result.step_seconds for result in ranked)
    end = max(10.0 * max(crossings.values(), default=slowest_start / shortest_step), 10.0)
    traces = [
        trace
        for result in ranked
        for trace in _traces(result, baseline, styles[result.configuration], end, crossings.get(result.configuration))
    ]
    return Figure(
        title="Break-even of cold starts",
        note=(
            "Times are since process start, including the first step. Marks are break-even points with the baseline."
            + (f" Not shown, because polybench cannot tell: {', '.join(inconclusive)}." if inconclusive else "")
        ),
        traces=traces,
        layout={
            "xaxis": log_axis([1.0, end], padding=1.0) | {"title": {"text": "steps"}},
            "yaxis": log_axis(value for trace in traces for value in trace["y"])
            | {"title": {"text": f"time since process start,<br>relative to {escape_text(baseline.configuration)}"}},
            "margin": {"l": 84, "r": 24},
        },
        height=360,
        numbers=[
            f"{result.configuration}: cold start {units.format_seconds(_startup(result).cold_start_seconds)}"
            + (f", {_crossing_text(baseline, steps)}" if (steps := crossings.get(result.configuration)) else "")
            for result in ranked
        ],
    )


def _is_inconclusive(result: Result) -> bool:
    return result.vs_baseline is None or result.vs_baseline.is_inconclusive


def _crossing_text(baseline: Result, steps: int) -> str:
    return f"breaks even with {baseline.configuration} after {_step_count(steps)}"


def _step_count(steps: float) -> str:
    number = round(steps)
    return "1 step" if number == 1 else f"{number:,} steps"


def _startup(result: Result) -> ColdStart:
    assert result.startup is not None
    return result.startup


def _steps_to_break_even(result: Result, baseline: Result) -> int | None:
    later, earlier = sorted((result, baseline), key=lambda one: -_startup(one).cold_start_seconds)
    return steps_to_break_even(
        _startup(later).cold_start_seconds,
        later.step_seconds,
        _startup(earlier).cold_start_seconds,
        earlier.step_seconds,
    )


def _seconds_after(result: Result, steps: float) -> float:
    """Compute the seconds since process start; the cold start includes the first step."""
    return _startup(result).cold_start_seconds + (steps - 1) * result.step_seconds


def _traces(result: Result, baseline: Result, style: TraceStyle, end: float, crossing: int | None) -> list[Trace]:
    name = result.configuration

    def ratio(steps: float) -> float:
        return _seconds_after(result, steps) / _seconds_after(baseline, steps)

    steps = [end ** (number / _POINTS) for number in range(_POINTS + 1)]
    ratios = list(map(ratio, steps))
    tooltips = [
        f"{name}, {_step_count(step)}: {units.format_number(value)} times as long as {baseline.configuration}"
        for step, value in zip(steps, ratios, strict=True)
    ]
    line = scatter("lines", steps, ratios, configuration=name, tooltips=tooltips, line=style.line(2))
    if crossing is None:
        return [line]
    mark = scatter(
        "markers",
        [crossing],
        [ratio(crossing)],
        configuration=name,
        tooltips=[f"{name} {_crossing_text(baseline, crossing)}"],
        showlegend=False,
        marker=style.marker(11),
    )
    return [line, mark]
