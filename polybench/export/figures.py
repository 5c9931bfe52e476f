"""Figures of layers, fixed costs and sweeps, for `.plot()`: every point with its 95 % interval.

The roofline has a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from types import ModuleType
from typing import Any

from polybench.core.document.layers import EngineLayers, LayersDocument
from polybench.core.document.overhead import EngineOverhead, OverheadDocument
from polybench.core.document.sweep import SweepDocument, SweepPoint, SweptCell
from polybench.export.drawing import (
    Interval,
    Look,
    caption,
    layout,
    look,
    milliseconds,
    plotly,
    with_intervals,
)
from polybench.export.layers_rows import RESIDUE, Key, Sort, ordered

_BARS_PIXELS = 14
"""Height of a bar, so that labels of layers never overlap."""


def layers_figure(document: LayersDocument, sort: Sort = "network") -> Any:
    """A group of bars for each part of each layer, a bar for each cell; below them the residue, which may be
    below 0.

    Raises:
        BadInput: plotly is not installed.
    """
    draw = plotly()
    engines = [engine for engine in document.engines if engine.rows]
    keys = [*ordered(document, sort), RESIDUE]
    bars = [
        draw.Bar(
            name=engine.cell,
            orientation="h",
            y=[" · ".join(filter(None, key)) for key in keys],
            marker={"color": one.colour, "pattern": {"shape": one.hatch, "fillmode": "overlay", "size": 6}},
            **milliseconds("x", *_times(engine, keys)),
        )
        for one, engine in ((look(number), engine) for number, engine in enumerate(engines))
    ]
    told = document.settings
    return draw.Figure(
        bars,
        layout(
            f"{told.model}, batch {told.batch_size}: a training step, part by part",
            caption(document.host, document.created, told.threads, told.precision),
        )
        | {
            "barmode": "group",
            "height": 160 + _BARS_PIXELS * len(keys) * (len(engines) + 1),
            "xaxis": {"title": {"text": "ms a step"}},
            "yaxis": {"autorange": "reversed", "automargin": True},  # the network from top to bottom
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
    draw = plotly()
    traces = []
    for number, engine in enumerate(engine for engine in document.engines if engine.points):
        shared = {"legendgroup": engine.cell, "cliponaxis": False}
        sizes = [point.batch_size for point in engine.points]
        measured = milliseconds(
            "y",
            [point.seconds_per_step for point in engine.points],
            [point.interval95 for point in engine.points],
        )
        marker = {"color": look(number).colour, "symbol": look(number).symbol, "size": 8}
        traces.append(
            draw.Scatter(name=engine.cell, x=sizes, mode="markers", marker=marker, **measured, **shared)
        )
        if engine.fixed_seconds is not None:
            traces += _line(draw, engine, [0, *sizes], look(number), shared)
    largest = max((point.batch_size for engine in document.engines for point in engine.points), default=1)
    return draw.Figure(
        traces,
        layout(
            f"{document.model}: fixed cost of a step (at 0), and cost of a sample",
            caption(document.host, document.created, document.threads),
        )
        | {
            # The fixed costs stand clear of the axis.
            "xaxis": {"title": {"text": "batch size"}, "range": [-0.03 * largest, 1.04 * largest]},
            "yaxis": {"title": {"text": "ms a step"}, "rangemode": "tozero"},
        },
    )


def _line(
    draw: ModuleType, engine: EngineOverhead, sizes: Sequence[int], its: Look, shared: Mapping[str, Any]
) -> list[Any]:
    """The line over these sizes, and its beginning with its interval."""
    fixed, slope = engine.fixed_seconds or 0.0, engine.seconds_per_sample or 0.0
    start = milliseconds("y", [fixed], [engine.intervals.fixed_seconds])
    hidden = {"showlegend": False, **shared}
    fitted = [1e3 * (fixed + slope * size) for size in sizes]
    line = {"color": its.colour, "dash": its.dash, "width": 1.5}
    cross = {"color": its.colour, "symbol": f"{its.symbol}-open", "size": 11, "line": {"width": 2}}
    return [
        draw.Scatter(name=f"{engine.cell}, fitted", x=sizes, y=fitted, mode="lines", line=line, **hidden),
        draw.Scatter(
            name=f"{engine.cell}, fixed cost", x=[0], mode="markers", marker=cross, **start, **hidden
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
    draw = plotly()
    across = max(document.axes, key=lambda axis: len(document.axes[axis]))
    curves: dict[str, list[tuple[SweepPoint, SweptCell]]] = {}
    for point in document.points:
        others = [f"{_words(axis)} {value}" for axis, value in point.values.items() if axis != across]
        for cell in point.cells:
            if cell.samples_per_second is not None:
                curves.setdefault(", ".join([cell.cell, *others]), []).append((point, cell))
    traces = [
        draw.Scatter(
            name=name,
            x=[point.values[across] for point, _ in curve],
            mode="lines+markers",
            marker={
                "color": one.colour,
                "size": 9,
                "symbol": [
                    f"{one.symbol}-open" if point.oversubscribed else one.symbol for point, _ in curve
                ],
            },
            line={"color": one.colour, "dash": one.dash},
            **with_intervals(
                "y",
                [cell.samples_per_second for _, cell in curve],
                [_throughput_interval(cell) for _, cell in curve],
            ),
        )
        for one, (name, curve) in zip(map(look, count()), curves.items(), strict=False)
    ]
    values = document.axes[across]
    # Values that are doubled again and again stand as far from each other as the first two.
    kind = "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear"
    return draw.Figure(
        traces,
        layout(f"{document.model}: throughput", caption(document.host, document.created))
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


def _words(axis: str) -> str:
    return axis.replace("_", " ")
