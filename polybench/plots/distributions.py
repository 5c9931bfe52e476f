"""How step times of each process spread: fresh processes of one program differ, and here one sees it."""

from __future__ import annotations

import numpy as np

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.plots.plot import Plot, Trace, left_margin, log_axis, rounded, text, timed
from polybench.plots.style import Look, looks

_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BETWEEN = 0.7
"""Rows between one cell and the next."""


def draw(study: StudyDocument) -> Plot:
    """A box for each process of each cell.

    Raises:
        NothingToDraw: nothing was timed.
    """
    measured = timed(study)
    styles = looks(result.cell for result in study.results)
    traces: list[Trace] = []
    ticks: list[float] = []
    row = 0.0
    ends: list[float] = []
    for result in measured:
        found = [_quantiles(process) for process in result.steps]
        rows = [row + number for number in range(len(found))]
        traces.append(_boxes(result, rows, found, styles[result.cell]))
        ticks.append((rows[0] + rows[-1]) / 2)
        ends += [1e3 * value for one in found for value in (one[0], one[-1])]
        row = rows[-1] + 1 + _BETWEEN
    kinds = {result.samples.kind for result in measured if result.samples}
    blocks = " Where steps were timed in blocks, a block counts as one." if "block" in kinds else ""
    return Plot(
        title="Step times of each process",
        note=(
            "A box for each fresh process, the first on top: quartiles and median; whiskers"
            " from the 5th to the 95th"
            f" percentile of its timed steps.{blocks}"
        ),
        traces=traces,
        layout={
            "xaxis": log_axis(ends) | {"title": {"text": "ms a step"}},
            "yaxis": {
                "tickvals": ticks, "ticktext": [text(result.cell) for result in measured], "ticks": "",
                "range": [row - _BETWEEN - 0.3, -0.7], "showgrid": False, "zeroline": False,
            },
            "showlegend": False,
            "margin": {"l": left_margin(result.cell for result in measured), "r": 16},
        },
        height=round(100 + 20 * row),
    )  # fmt: skip


def _quantiles(process: list[list[float]]) -> list[float]:
    steps = [sample for one in process for sample in one]
    return [float(value) for value in np.quantile(steps, _SHARES)]


def _boxes(result: Result, rows: list[float], found: list[list[float]], style: Look) -> Trace:
    low, first, middle, third, high = (
        [rounded(1e3 * one[number]) for one in found] for number in range(len(_SHARES))
    )
    return {
        "type": "box",
        "orientation": "h",
        "name": text(result.cell),
        "y": rows,
        "lowerfence": low,
        "q1": first,
        "median": middle,
        "q3": third,
        "upperfence": high,
        "line": {"color": style.colour, "width": 1.5},
        "fillcolor": style.faint(0.25),
        "width": 0.7,
        "hoverinfo": "x+name",
    }
