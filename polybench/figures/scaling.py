"""Speed over a parameter: the throughput of a sweep, and the step times of `overhead` with their linear fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polybench.figures.figure import (
    HOLLOW,
    NEUTRAL,
    Figure,
    Interval,
    NoData,
    Trace,
    TraceStyle,
    error_bars,
    scatter,
    style_for,
)
from polybench.schema import units
from polybench.schema.measurements import (
    ConfigurationOverhead,
    OverheadDocument,
    OverheadPoint,
    PointResult,
    SweepDocument,
    SweepPoint,
)

Curve = list[tuple[SweepPoint, PointResult]]


def draw(document: SweepDocument) -> Figure:
    """Draw the throughput over the axis with the most values, a curve per configuration and other value."""
    axis = max(document.axes, key=lambda name: len(document.axes[name]))
    curves = _curves(document, axis)
    if not curves:
        raise NoData("the sweep has no times: every point failed")
    values = document.axes[axis]
    # On a logarithmic axis, values that double have equal distances.
    kind = "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear"
    traces = [
        _curve_trace(name, curve, axis, style_for(number, name), document.input_kind)
        for number, (name, curve) in enumerate(curves.items())
    ]
    note = "Error bars are 95% intervals of the speedup over the curve's first point, which has none."
    if any(result.inconclusive_reason for curve in curves.values() for _, result in curve):
        note += f" {HOLLOW}"
    too_many = [point.parameters[axis] for point in document.points if point.oversubscribed]
    if axis == "threads":
        traces += [_linear_scaling(curve, axis) for curve in curves.values()]
        note += " Dotted lines are linear scaling."
        note += " Shaded: more threads than usable cores." if too_many else ""
    return Figure(
        title="Throughput of a sweep",
        note=note,
        traces=traces,
        layout={
            "xaxis": {
                "title": {"text": _axis_title(axis)}, "type": kind, "tickvals": values,
                "ticktext": [f"{value:,}" for value in values],
            },
            "yaxis": {
                "title": {"text": f"{document.input_kind}s/s"}, "rangemode": "tozero", "tickformat": ",~g",
            },
            "margin": {"l": 84, "r": 24},
            "shapes": [_shade(values, min(too_many))] if too_many and axis == "threads" else [],
        },
        height=430,
    )  # fmt: skip


def _shade(values: Sequence[int], first: int) -> dict[str, Any]:
    """Shade the values from `first`, beginning halfway from the previous one."""
    start = (max((value for value in values if value < first), default=first) + first) / 2
    return {
        "type": "rect", "x0": start, "x1": max(values) + first - start, "y0": 0, "y1": 1, "yref": "paper",
        "layer": "below", "line": {"width": 0}, "fillcolor": f"{NEUTRAL}26",
    }  # fmt: skip


def _curves(document: SweepDocument, axis: str) -> dict[str, Curve]:
    """Group points by configuration and by the values of the other axes."""
    curves: dict[str, Curve] = {}
    for point in document.points:
        others = [f"{_axis_title(name)} {value}" for name, value in point.parameters.items() if name != axis]
        for result in point.configurations:
            if result.items_per_second is not None:
                name = ", ".join([result.configuration, *others])
                curves.setdefault(name, []).append((point, result))
    return curves


def _curve_trace(name: str, curve: Curve, axis: str, style: TraceStyle, input_kind: str) -> Trace:
    rates = [result.items_per_second or 0.0 for _, result in curve]
    intervals = [_rate_interval(result) for _, result in curve]
    return scatter(
        "lines+markers",
        [point.parameters[axis] for point, _ in curve],
        rates,
        configuration=curve[0][1].configuration,
        name=name,
        legendgroup=name,
        tooltips=[
            f"{name}, {_axis_title(axis)} {point.parameters[axis]:,}: {_rate_text(result, interval)} {input_kind}s/s"
            + (f", cannot tell: {result.inconclusive_reason}" if result.inconclusive_reason else "")
            + (", more threads than usable cores" if point.oversubscribed else "")
            for (point, result), interval in zip(curve, intervals, strict=True)
        ],
        error_y=error_bars(rates, intervals),
        line=style.line(2),
        marker=style.marker(9, hollow=[result.inconclusive_reason is not None for _, result in curve]),
    )


def _linear_scaling(curve: Curve, axis: str) -> Trace:
    """Draw a throughput proportional to the axis, through the first point."""
    point, result = curve[0]
    values = [one.parameters[axis] for one, _ in curve]
    rate = (result.items_per_second or 0.0) / point.parameters[axis]
    line = {"color": NEUTRAL, "width": 1, "dash": "dot"}
    properties: dict[str, Any] = {"line": line, "showlegend": False}
    return scatter("lines", values, values, scale=rate, configuration=result.configuration, **properties)


def _rate_text(result: PointResult, interval: Interval | None) -> str:
    low_to_high = "" if interval is None else f" ({' to '.join(units.format_count(round(rate)) for rate in interval)})"
    return units.format_count(round(result.items_per_second or 0.0)) + low_to_high


def _rate_interval(result: PointResult) -> Interval | None:
    if result.ci95 is None or not result.speedup or result.items_per_second is None:
        return None
    first = result.items_per_second / result.speedup
    low, high = result.ci95
    return first * low, first * high


def _axis_title(axis: str) -> str:
    return axis.replace("_", " ")


def draw_overhead(document: OverheadDocument) -> Figure:
    """Draw step times over the batch size, and linear fits, whose value at batch size 0 is the overhead."""
    measured = [configuration for configuration in document.configurations if configuration.points]
    if not measured:
        reasons = "; ".join(f"{one.configuration}: {one.reason or one.status}" for one in document.configurations)
        raise NoData(f"the overhead has no times: {reasons or 'nothing was measured'}")
    largest = max(point.batch_size for configuration in measured for point in configuration.points)
    return Figure(
        title="Step time over batch size",
        note=(
            "Lines are linear fits. Their value at batch size 0 (cross) is the fixed overhead of a step."
            " Configurations that are not linear have no line."
            " Error bars are 95% intervals over processes, or over the rounds of a single process."
        ),
        traces=[
            trace
            for number, one in enumerate(measured)
            for trace in _fit_traces(one, style_for(number, one.configuration))
        ],
        layout={
            # Keeps the marks at 0 clear of the axis.
            "xaxis": {"title": {"text": "batch size"}, "range": [-0.03 * largest, 1.04 * largest]},
            "yaxis": {"title": {"text": "step time, ms"}, "rangemode": "tozero"},
        },
        height=430,
    )


def _fit_traces(one: ConfigurationOverhead, style: TraceStyle) -> list[Trace]:
    """Draw the measured points, and the fit with its overhead if the points are on a line."""
    name, overhead = one.configuration, one.overhead_seconds

    def marks(points: Sequence[OverheadPoint], labels: Sequence[str], **properties: Any) -> Trace:
        seconds, intervals = [point.step_seconds for point in points], [point.ci95 for point in points]
        times = map(units.format_seconds_with_ci, seconds, intervals)
        return scatter(
            "markers",
            [point.batch_size for point in points],
            seconds,
            scale=1e3,
            configuration=name,
            tooltips=[f"{name}, {label}: {time}" for label, time in zip(labels, times, strict=True)],
            cliponaxis=False,
            error_y=error_bars(seconds, intervals, 1e3),
            **properties,
        )

    points = marks(one.points, [f"batch size {point.batch_size:,}" for point in one.points], marker=style.marker(9))
    if overhead is None or one.seconds_per_item is None or not one.is_linear:
        return [points]
    ends = [0, max(point.batch_size for point in one.points)]
    fitted = [overhead + one.seconds_per_item * size for size in ends]
    line = scatter("lines", ends, fitted, scale=1e3, configuration=name, showlegend=False, line=style.line(1.5))
    cross = {"color": style.colour, "symbol": "x-thin", "size": 9, "line": {"color": style.colour, "width": 2}}
    at_zero = OverheadPoint(0, overhead, one.ci95.overhead_seconds)
    return [points, line, marks([at_zero], ["overhead of a step"], marker=cross, showlegend=False)]
