"""Each cell over time: step times of saved studies, and the level of each piece of their line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polybench.core.document.history import HistoryDocument, Series
from polybench.plots.plot import NothingToDraw, Plot, Trace, error_bars, log_axis, rounded, text
from polybench.plots.style import Look, look
from polybench.report.listed import seconds_of

MOST = 12
"""Series in one figure: more lines are told apart by nobody."""
_HALF_A_DAY = 43_200.0


def draw(document: HistoryDocument) -> Plot:
    """Step times with their intervals over the time at which each study began.

    Raises:
        NothingToDraw: no ranked cell of a saved study is like what was asked for.
    """
    shown = document.series[:MOST]
    if not shown:
        raise NothingToDraw(
            "no ranked cell of a saved study is like that; polybench list shows what is saved"
        )
    values = [value for series in shown for point in series.points for value in (point.seconds, point.level)]
    left_out = f" {len(document.series) - MOST} more are not shown." if len(document.series) > MOST else ""
    return Plot(
        title=f"{text_of(shown[0])} over time" if len(shown) == 1 else "Step times over time",
        note=(
            "A mark is a study, with the 95% interval over its processes; hollow marks had a single process."
            f" Lines are the levels between which the step time stepped.{left_out}"
        ),
        traces=[trace for number, series in enumerate(shown) for trace in _traces(series, look(number))],
        layout={
            "xaxis": {"type": "date", "title": {"text": "begun (UTC)"}, **_day(shown)},
            "yaxis": log_axis([1e3 * value for value in values]) | {"title": {"text": "ms a step"}},
            "margin": {"l": 72, "r": 24},
            "showlegend": len(shown) > 1,
        },
        height=360,
    )


def text_of(series: Series) -> str:
    """The cell and its workload, where it has one name only."""
    return f"{series.cell}, {series.model}, batch {series.batch_size}"


def _day(shown: Sequence[Series]) -> dict[str, Any]:
    """A range around a single date, which plotly would show to the nanosecond."""
    dates = {point.created for series in shown for point in series.points}
    first = seconds_of(next(iter(dates))) if len(dates) == 1 else None
    return {} if first is None else {"range": [1e3 * (first - _HALF_A_DAY), 1e3 * (first + _HALF_A_DAY)]}


def _traces(series: Series, style: Look) -> Iterator[Trace]:
    name = text(", ".join(filter(None, (text_of(series), series.other, series.hostname))))
    dates = [point.created for point in series.points]
    seconds = [1e3 * point.seconds for point in series.points]
    intervals = [
        point.interval95 and (1e3 * point.interval95[0], 1e3 * point.interval95[1]) for point in series.points
    ]
    yield {
        "type": "scatter", "mode": "lines", "name": name, "legendgroup": name, "showlegend": False,
        "x": dates, "y": [rounded(1e3 * point.level) for point in series.points], "hoverinfo": "skip",
        "line": {"color": style.colour, "dash": style.dash, "width": 2, "shape": "hv"},
    }  # fmt: skip
    yield {
        "type": "scatter", "mode": "markers", "name": name, "legendgroup": name,
        "x": dates, "y": [*map(rounded, seconds)], "error_y": error_bars(seconds, intervals),
        "text": [text(point.study) for point in series.points],
        "marker": {
            "color": style.colour, "size": 8, "line": {"width": 1.5, "color": style.colour},
            "symbol": [style.symbol + "-open" * (point.interval95 is None) for point in series.points],
        },
        "hovertemplate": f"%{{text}}: %{{y:.4~g}} ms<extra>{name}</extra>",
    }  # fmt: skip
