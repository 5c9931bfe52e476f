"""The roofline: what each part of each layer reaches of the measured roofs of its machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polybench.core.document.layers import EngineLayers, LayersDocument, Part
from polybench.plots.ceilings import HEIGHT, Ceilings, axes, extent, lines
from polybench.plots.plot import Interval, NothingToDraw, Plot, Trace, error_bars, rounded, text
from polybench.plots.style import NEUTRAL, look

_MARKS: dict[Part, str] = {"forward": "", "data gradient": "-open", "weight gradient": "-open-dot"}
"""What of a layer multiplies, and how the mark of a cell is drawn for it."""


class Point(NamedTuple):
    """A part of a layer: FLOP a compulsory byte, and FLOP/s with their interval."""

    layer: str
    part: Part
    intensity: float
    rate: float
    interval: Interval | None


def draw(document: LayersDocument) -> Plot:
    """Every part of every layer that multiplies, in each cell for which roofs are kept, below these roofs.

    Raises:
        NothingToDraw: no roof is kept for these cells.
    """
    told = document.settings
    shown = [engine for engine in document.engines if engine.roof and list(_points(engine))]
    ceilings = list(dict.fromkeys(_ceilings_of(engine, told.precision) for engine in shown))
    if not ceilings:
        command = f"--threads {told.threads} --model {told.model} --batch-size {told.batch_size}"
        raise NothingToDraw(
            "no roof is kept for these engines on this machine; measure it while it is quiet, then the layers"
            f" again: polybench limit {command}"
        )
    points = [point for engine in shown for point in _points(engine)]
    numbers = {engine.cell: number for number, engine in enumerate(document.engines)}
    marks = [trace for engine in shown for trace in _marks(engine, numbers[engine.cell])]
    across = extent((point.intensity for point in points), ceilings)
    named = [(one.layer, one.intensity) for one in points]
    return Plot(
        title="Layers below the machine's roofs",
        note=(
            "Roofs are the most that was measured on this machine: lines of products and convolutions, and"
            " the slope of memory. A part further to the right has more to compute for each byte that it has"
            " to move; the further below a roof, the more is lost. Bars are 95% intervals."
        ),
        traces=[*lines(ceilings, across), *marks, *_parts(points)],
        layout=axes(across, named, [one.rate for one in points], ceilings),
        height=HEIGHT,
    )


def _ceilings_of(engine: EngineLayers, precisions: str) -> Ceilings:
    """Of a cell; its name has its precision where that is not the study's first."""
    assert engine.roof is not None
    _, _, own = engine.cell.partition("/")[2].partition("/")
    where = f"{engine.device}, {own or precisions.partition(',')[0]}"
    roof = engine.roof
    return Ceilings(where, roof.flops_per_second, roof.convolution_flops_per_second, roof.bytes_per_second)


def _points(engine: EngineLayers) -> Iterator[Point]:
    """Those that took longer than asking for nothing."""
    for row in engine.rows:
        if row.flop and row.compulsory_bytes and row.seconds_per_step > 0:
            low, high = row.interval95 or (0.0, 0.0)
            yield Point(
                row.layer,
                row.part,
                row.flop / row.compulsory_bytes,
                row.flop / row.seconds_per_step,
                (row.flop / high, row.flop / low) if low > 0 else None,
            )


def _marks(engine: EngineLayers, number: int) -> Iterator[Trace]:
    """A trace for each part; the legend has the cell once."""
    style, points, cell = look(number), list(_points(engine)), text(engine.cell)
    parts = [part for part in _MARKS if any(point.part == part for point in points)]
    for part in parts:
        chosen = [point for point in points if point.part == part]
        rates = [point.rate for point in chosen]
        yield {
            "type": "scatter", "mode": "markers", "name": cell, "legendgroup": cell,
            "showlegend": part == parts[0],
            "x": [rounded(point.intensity) for point in chosen],
            "y": [*map(rounded, rates)],
            "error_y": error_bars(rates, [point.interval for point in chosen]),
            "text": [text(point.layer) for point in chosen],
            "marker": {
                "color": style.colour, "symbol": f"{style.symbol}{_MARKS[part]}", "size": 10,
                "line": {"width": 1.5 if _MARKS[part] else 0},
            },
            "hovertemplate": f"%{{text}}, {part}: %{{x:.3~g}} FLOP/B, %{{y:.3~s}}FLOP/s<extra>{cell}</extra>",
        }  # fmt: skip


def _parts(points: Sequence[Point]) -> Iterator[Trace]:
    """Of the legend only: what filled and hollow marks are."""
    for part, mark in _MARKS.items():
        if any(point.part == part for point in points):
            yield {
                "type": "scatter", "mode": "markers", "name": part, "x": [None], "y": [None],
                "marker": {
                    "color": NEUTRAL, "symbol": f"circle{mark}", "size": 9,
                    "line": {"width": 1.5, "color": NEUTRAL},
                },
            }  # fmt: skip
