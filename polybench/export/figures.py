"""Figures of layers, fixed costs and sweeps, for `.plot()`: every point with its 95 % interval.

plotly (extra `plot`) is imported here only, and when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from polybench.core.document.layers import EngineLayers, LayersDocument
from polybench.core.document.overhead import EngineOverhead, OverheadDocument
from polybench.core.document.sweep import SweepDocument, SweepPoint, SweptCell
from polybench.core.errors import BadInput
from polybench.export.layers_rows import RESIDUE, Key, Sort, ordered

Interval = tuple[float, float]

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
"""Told apart by the colour-blind too (Okabe and Ito, "Color Universal Design", 2008)."""

_BARS_PIXELS = 14
"""Height of a bar, so that labels of layers never overlap."""


def layers_figure(document: LayersDocument, sort: Sort = "network") -> Any:
    """A group of bars for each part of each layer, a bar for each cell; below them the residue, which may be
    below 0.

    Raises:
        BadInput: plotly is not installed.
    """
    plotly = _plotly()
    engines = [engine for engine in document.engines if engine.rows]
    keys = [*ordered(document, sort), RESIDUE]
    bars = [
        plotly.Bar(
            name=engine.cell,
            orientation="h",
            y=[" · ".join(filter(None, key)) for key in keys],
            marker_color=_colour(number),
            **_milliseconds("x", *_times(engine, keys)),
        )
        for number, engine in enumerate(engines)
    ]
    return plotly.Figure(
        bars,
        _layout(f"{document.settings.model}, batch {document.settings.batch_size}: a training step")
        | {
            "barmode": "group",
            "height": 160 + _BARS_PIXELS * len(keys) * (len(engines) + 1),
            "xaxis": {"title": {"text": "ms a step"}},
            "yaxis": {"autorange": "reversed"},  # the network from top to bottom
        },
    )


def _times(engine: EngineLayers, keys: Sequence[Key]) -> tuple[list[float | None], list[Interval | None]]:
    """Seconds and interval of each part; None where the engine has no such part."""
    times: dict[Key, tuple[float | None, Interval | None]] = {
        (row.layer, row.part): (row.seconds_per_step, row.interval95) for row in engine.rows
    }
    times[RESIDUE] = engine.residue_seconds, engine.interval95
    found = [times.get(key, (None, None)) for key in keys]
    return [seconds for seconds, _ in found], [interval for _, interval in found]


def overhead_figure(document: OverheadDocument) -> Any:
    """The step time over the batch size, and the line fitted to it; at 0 stands the fixed cost.

    Raises:
        BadInput: plotly is not installed.
    """
    plotly = _plotly()
    traces = []
    for number, engine in enumerate(engine for engine in document.engines if engine.points):
        shared = {"legendgroup": engine.cell, "marker_color": _colour(number)}
        sizes = [point.batch_size for point in engine.points]
        measured = _milliseconds(
            "y",
            [point.seconds_per_step for point in engine.points],
            [point.interval95 for point in engine.points],
        )
        traces.append(plotly.Scatter(name=engine.cell, x=sizes, mode="markers", **measured, **shared))
        if engine.fixed_seconds is not None:
            traces += _line(plotly, engine, [0, *sizes], shared)
    return plotly.Figure(
        traces,
        _layout(f"{document.model}: fixed cost of a step, and cost of a sample")
        | {
            "xaxis": {"title": {"text": "batch size"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "ms a step"}, "rangemode": "tozero"},
        },
    )


def _line(
    plotly: ModuleType, engine: EngineOverhead, sizes: Sequence[int], shared: Mapping[str, Any]
) -> list[Any]:
    """The line over these sizes, and its beginning with its interval."""
    fixed, slope = engine.fixed_seconds or 0.0, engine.seconds_per_sample or 0.0
    start = _milliseconds("y", [fixed], [engine.intervals.fixed_seconds])
    hidden = {"showlegend": False, **shared}
    line = [1e3 * (fixed + slope * size) for size in sizes]
    return [
        plotly.Scatter(name=f"{engine.cell}, fitted", x=sizes, y=line, mode="lines", **hidden),
        plotly.Scatter(
            name=f"{engine.cell}, fixed cost", x=[0], mode="markers", marker_symbol="x", **start, **hidden
        ),
    ]


def sweep_figure(document: SweepDocument) -> Any:
    """Images a second over the axis with the most values, a curve for each cell and each combination of the
    others.

    The intervals are those of the speed-up against the curve's first point, which has none; points with more
    threads than usable cores are hollow.

    Raises:
        BadInput: plotly is not installed.
    """
    plotly = _plotly()
    across = max(document.axes, key=lambda axis: len(document.axes[axis]))
    curves: dict[str, list[tuple[SweepPoint, SweptCell]]] = {}
    for point in document.points:
        others = [f"{_words(axis)} {value}" for axis, value in point.values.items() if axis != across]
        for cell in point.cells:
            if cell.samples_per_second is not None:
                curves.setdefault(", ".join([cell.cell, *others]), []).append((point, cell))
    traces = [
        plotly.Scatter(
            name=name,
            x=[point.values[across] for point, _ in curve],
            mode="lines+markers",
            marker={
                "color": _colour(number),
                "size": 9,
                "symbol": ["circle-open" if point.oversubscribed else "circle" for point, _ in curve],
            },
            line_color=_colour(number),
            **_values(
                "y",
                [cell.samples_per_second for _, cell in curve],
                [_throughput_interval(cell) for _, cell in curve],
            ),
        )
        for number, (name, curve) in enumerate(curves.items())
    ]
    values = document.axes[across]
    # Values that are doubled again and again stand as far from each other as the first two.
    kind = "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear"
    return plotly.Figure(
        traces,
        _layout(f"{document.model}: throughput")
        | {
            "xaxis": {"title": {"text": _words(across)}, "type": kind, "tickvals": values},
            "yaxis": {"title": {"text": "images/s"}, "rangemode": "tozero"},
        },
    )


def _throughput_interval(cell: SweptCell) -> Interval | None:
    if cell.interval95 is None or not cell.speedup or cell.samples_per_second is None:
        return None
    first = cell.samples_per_second / cell.speedup
    low, high = cell.interval95
    return first * low, first * high


def _milliseconds(
    axis: str, seconds: Sequence[float | None], intervals: Sequence[Interval | None]
) -> dict[str, Any]:
    return _values(
        axis,
        [None if value is None else 1e3 * value for value in seconds],
        [interval and (1e3 * interval[0], 1e3 * interval[1]) for interval in intervals],
    )


def _values(
    axis: str, values: Sequence[float | None], intervals: Sequence[Interval | None]
) -> dict[str, Any]:
    """Along an axis: values, and error bars to both ends of their intervals."""
    ends = [
        (0.0, 0.0) if value is None or interval is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(values, intervals, strict=True)
    ]
    return {
        axis: list(values),
        f"error_{axis}": {
            "type": "data",
            "symmetric": False,
            "array": [above for above, _ in ends],
            "arrayminus": [below for _, below in ends],
        },
    }


def _words(axis: str) -> str:
    return axis.replace("_", " ")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _layout(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "template": "plotly_white", "showlegend": True}


def _plotly() -> ModuleType:
    try:
        import plotly.graph_objects as module
    except ImportError as error:
        raise BadInput("plotly is not installed; pip install 'polybench[plot]', or use rows()") from error
    found: ModuleType = module
    return found
