"""Distribution of step times in each process, which shows how much process runs differ."""

from __future__ import annotations

import numpy as np

from polybench.figures.figure import (
    Figure,
    Trace,
    escape_text,
    label_margin,
    log_axis,
    results_with_times,
    round_coordinate,
)
from polybench.figures.style import TraceStyle, styles_for
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_GAP = 0.7
"""Rows between configurations."""


def draw(study: StudyDocument) -> Figure:
    """Draw a box for each process of each configuration.

    Raises:
        NoData: the study contains no times.
    """
    measured = results_with_times(study)
    styles = styles_for(result.configuration for result in study.results)
    traces: list[Trace] = []
    ticks: list[float] = []
    row = 0.0
    ends: list[float] = []
    for result in measured:
        quantiles = [_quantiles(process) for process in result.nested_step_times]
        rows = [row + number for number in range(len(quantiles))]
        traces.append(_boxes(result, rows, quantiles, styles[result.configuration]))
        ticks.append((rows[0] + rows[-1]) / 2)
        ends += [1e3 * value for one in quantiles for value in (one[0], one[-1])]
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


def _quantiles(process: list[list[float]]) -> list[float]:
    steps = [step_time for values in process for step_time in values]
    return [float(value) for value in np.quantile(steps, _QUANTILES)]


def _boxes(result: Result, rows: list[float], quantiles: list[list[float]], style: TraceStyle) -> Trace:
    low, first, middle, third, high = (
        [round_coordinate(1e3 * one[number]) for one in quantiles] for number in range(len(_QUANTILES))
    )
    return {
        "type": "box",
        "orientation": "h",
        "name": escape_text(result.configuration),
        "y": rows,
        "lowerfence": low,
        "q1": first,
        "median": middle,
        "q3": third,
        "upperfence": high,
        "line": {"color": style.colour, "width": 1.5},
        "fillcolor": style.lighten(0.25),
        "width": 0.7,
        "hoverinfo": "x+name",
    }
