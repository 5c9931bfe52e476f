"""Throughput of a sweep: a curve per configuration and combination of the other axes."""

from __future__ import annotations

from typing import Any

from polybench.figures.figure import (
    Figure,
    Interval,
    NoData,
    Trace,
    error_bars,
    escape_text,
    round_coordinate,
)
from polybench.figures.style import NEUTRAL, TraceStyle, style_for
from polybench.schema.sweep import PointResult, SweepDocument, SweepPoint

Curve = list[tuple[SweepPoint, PointResult]]


def draw(document: SweepDocument) -> Figure:
    """Draw the throughput over the axis with the most values; oversubscribed points are hollow.

    Raises:
        NoData: no point has times.
    """
    axis = max(document.axes, key=lambda name: len(document.axes[name]))
    curves = _curves(document, axis)
    if not curves:
        raise NoData("the sweep has no times: every point failed")
    values = document.axes[axis]
    # On a logarithmic axis, values that double have equal distances.
    kind = "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear"
    traces = [
        _trace(name, curve, axis, style_for(number), document.input_kind)
        for number, (name, curve) in enumerate(curves.items())
    ]
    note = (
        "Error bars are 95% intervals of the speedup over the curve's first point, which has none. Hollow"
        " marks have more threads than usable cores."
    )
    if axis == "threads":
        traces += [_linear_scaling(curve, axis) for curve in curves.values()]
        note += " Dotted lines are linear scaling."
    return Figure(
        title="Throughput of a sweep",
        note=note,
        traces=traces,
        layout={
            "xaxis": {
                "title": {"text": axis_title(axis)}, "type": kind, "tickvals": values,
                "ticktext": [f"{value:,}" for value in values],
            },
            "yaxis": {
                "title": {"text": f"{document.input_kind}s/s"}, "rangemode": "tozero", "tickformat": ",~g",
            },
            "margin": {"l": 84, "r": 24},
        },
        height=430,
    )  # fmt: skip


def _curves(document: SweepDocument, axis: str) -> dict[str, Curve]:
    """Group points by configuration and by the values of the other axes."""
    curves: dict[str, Curve] = {}
    for point in document.points:
        others = [f"{axis_title(name)} {value}" for name, value in point.parameters.items() if name != axis]
        for result in point.configurations:
            if result.items_per_second is not None:
                name = ", ".join([result.configuration, *others])
                curves.setdefault(name, []).append((point, result))
    return curves


def _trace(name: str, curve: Curve, axis: str, style: TraceStyle, input_kind: str) -> Trace:
    label = f"{escape_text(name)}, {axis_title(axis)} %{{x}}"
    rates = [result.items_per_second or 0.0 for _, result in curve]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape_text(name),
        "x": [point.parameters[axis] for point, _ in curve],
        "y": [round_coordinate(rate) for rate in rates],
        "error_y": error_bars(rates, [_interval(result) for _, result in curve]),
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "marker": {
            "color": style.colour,
            "size": 9,
            "symbol": [style.symbol + "-open" * point.oversubscribed for point, _ in curve],
        },
        "hovertemplate": f"{label}: %{{y:,.4~g}} {input_kind}s/s<extra></extra>",
    }


def _linear_scaling(curve: Curve, axis: str) -> dict[str, Any]:
    """Draw a throughput proportional to the axis, through the first point."""
    point, result = curve[0]
    first, rate = point.parameters[axis], result.items_per_second or 0.0
    values = [one.parameters[axis] for one, _ in curve]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": values,
        "y": [round_coordinate(rate * value / first) for value in values],
        "line": {"color": NEUTRAL, "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _interval(result: PointResult) -> Interval | None:
    if result.ci95 is None or not result.speedup or result.items_per_second is None:
        return None
    first = result.items_per_second / result.speedup
    low, high = result.ci95
    return first * low, first * high


def axis_title(axis: str) -> str:
    """Format the name of an axis: `batch_size` becomes "batch size"."""
    return axis.replace("_", " ")
