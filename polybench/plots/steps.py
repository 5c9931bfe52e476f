"""Step time over the run: the first steps of the process, then every timed step, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.plots.plot import Plot, Trace, log_axis, rounded, text, timed
from polybench.plots.style import Look, looks

POINTS = 150
"""Of a curve, at most: a thousand steps are told apart by no eye."""


def draw(study: StudyDocument) -> Plot:
    """Two panels with one scale: the first two steps of the cold start, and the timed steps.

    Raises:
        NothingToDraw: nothing was timed.
    """
    measured = timed(study)
    styles = looks(result.cell for result in study.results)
    curves = [(result, _binned(result)) for result in measured]
    traces = [
        trace
        for result, own in curves
        for trace in (*_warm_up(result, styles[result.cell]), *_timed(result, own, styles[result.cell]))
    ]
    bins = [one for _, of_cell in curves for one in of_cell]
    seconds = [1e3 * value for one in bins for value in (one.typical, one.low, one.high)]
    first = [1e3 * value for result in measured for value in _first(result) if value > 0]
    return Plot(
        title="Step time over the run",
        note=(
            "Left: the first two steps of a process, with compiling, tracing and autotuning in"
            " them (medians over"
            " processes). Right: timed steps in the order of a process; lines are medians over"
            f" processes, {_bands(bins)}."
            " Each panel has a scale of its own; between them, and before each round, are steps"
            " that nobody timed."
        ),
        traces=traces,
        layout={
            "xaxis": {
                "domain": [0, 0.16], "tickvals": [1, 2], "ticktext": ["1st", "2nd"], "range": [0.5, 2.5],
                "title": {"text": "warm-up"},
            },
            "xaxis2": {"domain": [0.25, 1], "title": {"text": "timed step of a process"}, "anchor": "y2"},
            "yaxis": log_axis(first or seconds) | {"title": {"text": "ms a step"}},
            "yaxis2": log_axis(seconds) | {"anchor": "x2"},
            "margin": {"l": 64, "r": 16},
        },
        height=430,
    )  # fmt: skip


def _first(result: Result) -> list[float]:
    """Seconds of the first two steps of a process."""
    startup = result.startup
    return [startup.first_step_seconds, startup.second_step_seconds] if startup else []


def _warm_up(result: Result, style: Look) -> list[Trace]:
    first = _first(result)
    if not all(value > 0 for value in first):
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": text(result.cell),
            "legendgroup": text(result.cell),
            "showlegend": False,
            "x": [1, 2],
            "y": [rounded(1e3 * value) for value in first],
            "marker": {"symbol": f"{style.symbol}-open", "size": 9, "color": style.colour},
            "line": {"color": style.colour, "dash": style.dash, "width": 1.5},
            "hovertemplate": f"{text(result.cell)}, step %{{x}}: %{{y:.4~g}} ms<extra></extra>",
        }
    ]


class Bin(NamedTuple):
    """Some steps of all processes: the number in their middle, the typical one, in seconds, and a band."""

    middle: float
    typical: float
    low: float
    high: float
    extreme: bool
    """The band is of all samples: they are too few for 5 % of them."""


def _bands(bins: Iterable[Bin]) -> str:
    kinds = {one.extreme for one in bins}
    if kinds == {True}:
        return "bands from the least to the most"
    return "bands 5% to 95%" + (", of few samples from the least to the most" if True in kinds else "")


def _binned(result: Result) -> list[Bin]:
    """At most POINTS of them, each over the same steps of all processes."""
    assert result.samples is not None
    each = result.samples.steps_per_sample
    processes = [[sample for one in process for sample in one] for process in result.steps]
    longest = max(map(len, processes))
    width = -(-longest // POINTS)
    bins = []
    for start in range(0, longest, width):
        parts = [part for process in processes if (part := process[start : start + width])]
        together = sorted(sample for part in parts for sample in part)
        middle = (start + min(width, longest - start) / 2) * each + 0.5
        low, high = _at(together, 0.05), _at(together, 0.95)
        extreme = _place(len(together), 0.05) == 0
        bins.append(Bin(middle, median(map(median, parts)), low, high, extreme))
    return bins


def _at(ordered: Sequence[float], share: float) -> float:
    """The value at this share of the way, the extreme ones where they are few."""
    return ordered[_place(len(ordered), share)]


def _place(count: int, share: float) -> int:
    return round(share * (count - 1))


def _timed(result: Result, bins: Sequence[Bin], style: Look) -> list[Trace]:
    steps = [rounded(one.middle) for one in bins]
    group = {"legendgroup": text(result.cell), "xaxis": "x2", "yaxis": "y2", "type": "scatter"}
    low, high = [rounded(1e3 * one.low) for one in bins], [rounded(1e3 * one.high) for one in bins]
    return [
        group
        | {
            "x": [*steps, *reversed(steps)],
            "y": [*high, *reversed(low)],
            "fill": "toself",
            "fillcolor": style.faint(0.18),
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "showlegend": False,
        },
        group
        | {
            "name": text(result.cell),
            "x": steps,
            "y": [rounded(1e3 * one.typical) for one in bins],
            "mode": "lines",
            "line": {"color": style.colour, "dash": style.dash, "width": 2},
            "hovertemplate": f"{text(result.cell)}, step %{{x:.0f}}: %{{y:.4~g}} ms<extra></extra>",
        },
    ]
