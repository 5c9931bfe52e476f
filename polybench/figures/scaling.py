"""Speed over a parameter: the throughput of a sweep, and the step times of `overhead` with their linear fit."""

from __future__ import annotations

from typing import Any

from polybench.figures.figure import (
    NEUTRAL,
    Figure,
    Interval,
    NoData,
    Trace,
    TraceStyle,
    error_bars,
    escape_text,
    scatter,
    style_for,
)
from polybench.schema.measurements import (
    ConfigurationOverhead,
    OverheadDocument,
    PointResult,
    SweepDocument,
    SweepPoint,
)

Curve = list[tuple[SweepPoint, PointResult]]


def draw(document: SweepDocument) -> Figure:
    """Draw the throughput over the axis with the most values, a curve per configuration and other value.

    Oversubscribed points are hollow.
    """
    axis = max(document.axes, key=lambda name: len(document.axes[name]))
    curves = _curves(document, axis)
    if not curves:
        raise NoData("the sweep has no times: every point failed")
    values = document.axes[axis]
    # On a logarithmic axis, values that double have equal distances.
    kind = "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear"
    traces = [
        _curve_trace(name, curve, axis, style_for(number), document.input_kind)
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
                "title": {"text": _axis_title(axis)}, "type": kind, "tickvals": values,
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
        others = [f"{_axis_title(name)} {value}" for name, value in point.parameters.items() if name != axis]
        for result in point.configurations:
            if result.items_per_second is not None:
                name = ", ".join([result.configuration, *others])
                curves.setdefault(name, []).append((point, result))
    return curves


def _curve_trace(name: str, curve: Curve, axis: str, style: TraceStyle, input_kind: str) -> Trace:
    label = f"{escape_text(name)}, {_axis_title(axis)} %{{x}}"
    rates = [result.items_per_second or 0.0 for _, result in curve]
    symbols = [style.symbol + "-open" * point.oversubscribed for point, _ in curve]
    return scatter(
        "lines+markers",
        [point.parameters[axis] for point, _ in curve],
        rates,
        name=name,
        error_y=error_bars(rates, [_rate_interval(result) for _, result in curve]),
        line=style.line(2),
        marker=style.marker(9) | {"symbol": symbols},
        hovertemplate=f"{label}: %{{y:,.4~g}} {input_kind}s/s<extra></extra>",
    )


def _linear_scaling(curve: Curve, axis: str) -> Trace:
    """Draw a throughput proportional to the axis, through the first point."""
    point, result = curve[0]
    values = [one.parameters[axis] for one, _ in curve]
    rate = (result.items_per_second or 0.0) / point.parameters[axis]
    line = {"color": NEUTRAL, "width": 1, "dash": "dot"}
    return scatter("lines", values, values, scale=rate, line=line, hoverinfo="skip", showlegend=False)


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
            "Lines are linear fits. Their value at batch size 0 (hollow) is the fixed overhead of a step."
            " Error bars are 95% intervals over processes, or over the rounds of a single process."
        ),
        traces=[
            trace for n, configuration in enumerate(measured) for trace in _fit_traces(configuration, style_for(n))
        ],
        layout={
            # Keeps the marks at 0 clear of the axis.
            "xaxis": {"title": {"text": "batch size"}, "range": [-0.03 * largest, 1.04 * largest]},
            "yaxis": {"title": {"text": "step time, ms"}, "rangemode": "tozero"},
        },
        height=430,
    )


def _fit_traces(one: ConfigurationOverhead, style: TraceStyle) -> list[Trace]:
    """Draw the measured points, and the fit with its overhead, if there is one."""

    def marks(sizes: list[int], times: list[tuple[float, Interval | None]], **properties: Any) -> Trace:
        return scatter(
            "markers",
            sizes,
            [seconds for seconds, _ in times],
            scale=1e3,
            legendgroup=one.configuration,
            cliponaxis=False,
            error_y=error_bars([seconds for seconds, _ in times], [interval for _, interval in times], 1e3),
            hovertemplate=f"{escape_text(one.configuration)}, batch %{{x}}: %{{y:.4~g}} ms<extra></extra>",
            **properties,
        )

    sizes = [point.batch_size for point in one.points]
    times = [(point.step_seconds, point.ci95) for point in one.points]
    points = marks(sizes, times, marker=style.marker(9), name=one.configuration)
    if one.overhead_seconds is None or one.seconds_per_item is None:
        return [points]
    ends = [0, max(sizes)]
    fitted = [one.overhead_seconds + one.seconds_per_item * size for size in ends]
    hidden: dict[str, Any] = {"legendgroup": one.configuration, "showlegend": False, "hoverinfo": "skip"}
    line = scatter("lines", ends, fitted, scale=1e3, line=style.line(1.5), **hidden)
    hollow = style.marker(11, "-open") | {"line": {"width": 2}}
    overhead = [(one.overhead_seconds, one.ci95.overhead_seconds)]
    return [points, line, marks([0], overhead, marker=hollow, showlegend=False)]
