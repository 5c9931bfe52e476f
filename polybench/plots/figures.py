"""Figures of layers and fixed costs, for `.plot()`: every point with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from polybench.core.document.layers import EngineLayers, LayersDocument
from polybench.core.document.overhead import EngineOverhead, OverheadDocument
from polybench.export.layers_rows import RESIDUE, Key, Sort, ordered
from polybench.plots.drawing import (
    Interval,
    Look,
    caption,
    layout,
    look,
    milliseconds,
    plotly,
)

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
