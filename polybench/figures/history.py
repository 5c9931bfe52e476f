"""Step times of saved studies over time, with the level of each segment between change points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polybench.figures.figure import (
    HOLLOW,
    Figure,
    NoData,
    Trace,
    TraceStyle,
    error_bars,
    escape_text,
    log_axis,
    scatter,
    style_for,
)
from polybench.render.history import step_time
from polybench.results.summaries import parse_time
from polybench.schema import units
from polybench.schema.analyses import HistoryDocument, Point, Series

MAX_SERIES = 12
"""Maximum number of series that readers can distinguish in a figure."""
_HALF_DAY = 43_200.0


def draw(document: HistoryDocument) -> Figure:
    """Draw step times with their intervals over the start time of each study."""
    shown = document.series[:MAX_SERIES]
    if not shown:
        raise NoData("no ranked configuration of a saved study matches; see the saved studies with polybench list")
    points = [point for series in shown for point in series.points]
    hollow = f" {HOLLOW}" if any(map(_is_inconclusive, points)) else ""
    hidden = len(document.series) - MAX_SERIES
    hidden_note = f" {hidden} more series are hidden." if hidden > 0 else ""
    return Figure(
        title=f"{_label(shown[0])} over time" if len(shown) == 1 else "Step times over time",
        note=(
            "Marks are studies, with 95% intervals over processes. Lines are the levels between change points."
            f"{hollow}{hidden_note}"
        ),
        traces=[
            trace
            for number, series in enumerate(shown)
            for trace in _traces(series, style_for(number, series.configuration))
        ],
        layout={
            "xaxis": {"type": "date", "title": {"text": "started (UTC)"}, **_date_range(shown)},
            "yaxis": log_axis(1e3 * value for one in points for value in (one.step_seconds, one.segment_level))
            | {"title": {"text": "step time, ms"}},
            "margin": {"l": 72, "r": 24},
            "showlegend": len(shown) > 1,
        },
        height=360,
    )


def _is_inconclusive(point: Point) -> bool:
    return point.ci95 is None or point.inconclusive_reason is not None


def _label(series: Series) -> str:
    return f"{series.configuration}, {units.format_model(series.model, series.pass_)}, batch {series.batch_size}"


def _date_range(shown: Sequence[Series]) -> dict[str, Any]:
    """Set a range around a single date, which plotly would otherwise show to the nanosecond."""
    dates = {point.created for series in shown for point in series.points}
    only = parse_time(next(iter(dates))) if len(dates) == 1 else None
    return {} if only is None else {"range": [1e3 * (only - _HALF_DAY), 1e3 * (only + _HALF_DAY)]}


def _traces(series: Series, style: TraceStyle) -> Iterator[Trace]:
    name = ", ".join(filter(None, (_label(series), series.distinguishing_settings, series.hostname)))
    dates = [escape_text(point.created) for point in series.points]
    seconds = [point.step_seconds for point in series.points]
    shared: dict[str, Any] = {"scale": 1e3, "name": name, "legendgroup": name}
    hollow = list(map(_is_inconclusive, series.points))
    levels = [point.segment_level for point in series.points]
    line = style.line(2) | {"shape": "hv"}
    yield scatter("lines", dates, levels, **shared, showlegend=False, line=line)
    yield scatter(
        "markers",
        dates,
        seconds,
        **shared,
        error_y=error_bars(seconds, [point.ci95 for point in series.points], 1e3),
        tooltips=[f"{name}, {point.study}: {step_time(point)}" for point in series.points],
        marker=style.marker(8, hollow=hollow),
    )
