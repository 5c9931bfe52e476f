"""Fixed overhead of a training step: step times over batch size, and a linear fit."""

from __future__ import annotations

from polybench.figures.figure import (
    Figure,
    Interval,
    NoData,
    Trace,
    error_bars,
    escape_text,
    round_coordinate,
)
from polybench.figures.style import TraceStyle, style_for
from polybench.schema.overhead import ConfigurationOverhead, OverheadDocument


def draw(document: OverheadDocument) -> Figure:
    """Draw step times and fits of all configurations; the fit at batch size 0 is the overhead.

    Raises:
        NoData: no configuration has times.
    """
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
        traces=[trace for n, configuration in enumerate(measured) for trace in _traces(configuration, style_for(n))],
        layout={
            # Keeps the marks at 0 clear of the axis.
            "xaxis": {"title": {"text": "batch size"}, "range": [-0.03 * largest, 1.04 * largest]},
            "yaxis": {"title": {"text": "step time, ms"}, "rangemode": "tozero"},
        },
        height=430,
    )


def _traces(configuration: ConfigurationOverhead, style: TraceStyle) -> list[Trace]:
    """Draw the measured points, and the fit with its overhead, if there is one."""
    marker = {"color": style.colour, "symbol": style.symbol, "size": 9}
    times = [(point.step_seconds, point.ci95) for point in configuration.points]
    sizes = [point.batch_size for point in configuration.points]
    points = _marks(configuration, sizes, times) | {
        "marker": marker,
        "name": escape_text(configuration.configuration),
    }
    if configuration.overhead_seconds is None or configuration.seconds_per_item is None:
        return [points]
    ends = [0, max(sizes)]
    fitted = [1e3 * (configuration.overhead_seconds + configuration.seconds_per_item * size) for size in ends]
    line = {
        "type": "scatter", "mode": "lines", "x": ends, "y": [round_coordinate(value) for value in fitted],
        "line": {"color": style.colour, "dash": style.dash, "width": 1.5},
        "legendgroup": escape_text(configuration.configuration), "showlegend": False, "hoverinfo": "skip",
    }  # fmt: skip
    hollow = marker | {"symbol": f"{style.symbol}-open", "size": 11, "line": {"width": 2}}
    overhead = _marks(configuration, [0], [(configuration.overhead_seconds, configuration.ci95.overhead_seconds)])
    return [points, line, overhead | {"marker": hollow, "showlegend": False}]


def _marks(configuration: ConfigurationOverhead, sizes: list[int], times: list[tuple[float, Interval | None]]) -> Trace:
    name = escape_text(configuration.configuration)
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": name,
        "cliponaxis": False,
        "x": sizes,
        "y": [round_coordinate(1e3 * seconds) for seconds, _ in times],
        "error_y": error_bars(
            [1e3 * seconds for seconds, _ in times],
            [interval and (1e3 * interval[0], 1e3 * interval[1]) for _, interval in times],
        ),
        "hovertemplate": f"{name}, batch %{{x}}: %{{y:.4~g}} ms<extra></extra>",
    }
