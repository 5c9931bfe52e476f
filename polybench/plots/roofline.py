"""The roofline of Williams, Waterman and Patterson (https://doi.org/10.1145/1498765.1498785): what is reached
over the FLOP that each byte is good for, and the measured roofs above it.

FLOP and bytes are those of `core.pieces`: the direct computation, and each value moved once. The roofs are
those of `polybench limit`, reached on the same machine, not a data sheet's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from polybench.core import units
from polybench.core.document.layers import EngineLayers, LayersDocument, Part
from polybench.core.document.limit import LimitDocument
from polybench.core.errors import BadInput
from polybench.core.pieces import pieces
from polybench.models import find_model
from polybench.plots.drawing import GREY, Interval, caption, layout, look, plotly, with_intervals
from polybench.plots.roofline_labels import Named, labels

_WIDTH, _PLOT_HEIGHT, _LEGEND = 940, 400, 230
"""px: fixed, so that names of layers can be kept apart."""

_MARKS: dict[Part, str] = {"forward": "", "data gradient": "-open", "weight gradient": "-open-dot"}
"""What of a layer multiplies, and how the mark of a cell is drawn for it."""

_ROOM = 1.6
"""By how much an axis is longer than what is in it, at either end."""


class Ceilings(NamedTuple):
    """The roofs of one device in one precision, in FLOP/s and B/s; None is not measured."""

    where: str
    product: float
    convolution: float | None
    memory: float | None

    def ridge(self, roof: float) -> float:
        """From how many FLOP a byte on `roof` is in reach, where memory is the limit before."""
        return roof / self.memory if self.memory else 0.0

    def allowed(self, intensity: float) -> float:
        """FLOP/s that product and memory allow."""
        return min(self.product, intensity * self.memory) if self.memory else self.product


class Point(NamedTuple):
    """A part of a layer: FLOP a compulsory byte, and FLOP/s with their interval."""

    layer: str
    part: Part
    intensity: float
    rate: float
    interval: Interval | None


def roofline_of_layers(document: LayersDocument) -> Any:
    """Every part of every layer that multiplies, in each cell for which roofs are kept, below these roofs.

    Raises:
        BadInput: plotly is not installed, or no roof is kept for these cells.
    """
    draw = plotly()
    told = document.settings
    shown = [engine for engine in document.engines if engine.roof and list(_points(engine))]
    ceilings = list(dict.fromkeys(_ceilings_of(engine, told.precision) for engine in shown))
    if not ceilings:
        command = f"--threads {told.threads} --model {told.model} --batch-size {told.batch_size}"
        raise BadInput(
            "no roof is kept for these engines on this machine; measure it while it is quiet, then the layers"
            f" again: polybench limit {command}"
        )
    points = [point for engine in shown for point in _points(engine)]
    traces = [trace for number, engine in enumerate(shown) for trace in _marks(engine, number)]
    across = _extent([*(point.intensity for point in points), *_ridges(ceilings)])
    title = f"{told.model}, batch {told.batch_size}: layers below the machine's roofs"
    return draw.Figure(
        [*_lines(ceilings, across), *traces, *_parts(points)],
        layout(title, caption(document.host, document.created, told.threads, told.precision))
        | _axes(
            across, [(one.layer, one.intensity) for one in points], [one.rate for one in points], ceilings
        ),
    )


def roofline_of_limit(document: LimitDocument) -> Any:
    """The roofs, and below them what they allow each convolution and dense layer of the network to reach.

    Raises:
        BadInput: plotly is not installed, or no roof was measured.
    """
    draw = plotly()
    ceilings = list(_ceilings_in(document))
    if not ceilings:
        raise BadInput("no roof was measured: there is nothing to draw")
    layers = [
        (piece.name, flop / moved)
        for piece in pieces(find_model(document.model))
        if (flop := piece.flop("forward", document.batch_size))
        and (moved := piece.compulsory_bytes("forward", document.batch_size))
    ]
    across = _extent([*(intensity for _, intensity in layers), *_ridges(ceilings)])
    allowed = [
        {
            "type": "scatter", "mode": "markers", "name": f"{_prefix(one, ceilings)}allowed to a layer",
            "x": [intensity for _, intensity in layers],
            "y": [one.allowed(intensity) for _, intensity in layers],
            "text": [name for name, _ in layers],
            "marker": {
                "color": GREY, "symbol": f"{look(number).symbol}-open", "size": 9, "line": {"width": 1.5},
            },
            "hovertemplate": "%{text}: %{x:.3~g} FLOP/B, at most %{y:.3~s}FLOP/s<extra></extra>",
        }
        for number, one in enumerate(ceilings)
    ]  # fmt: skip
    rates = [one.allowed(intensity) for one in ceilings for _, intensity in layers]
    title = f"{document.model}, batch {document.batch_size}: what the machine allows"
    precisions = ", ".join(dict.fromkeys(roof.precision for roof in document.roofs if roof.precision))
    date = max(roof.measured for roof in document.roofs)
    return draw.Figure(
        [*_lines(ceilings, across), *allowed],
        layout(title, caption(document.host, date, document.threads, precisions))
        | _axes(across, layers, rates, ceilings),
    )


def _ceilings_of(engine: EngineLayers, precisions: str) -> Ceilings:
    """Of a cell; its name has its precision where that is not the study's first."""
    assert engine.roof is not None
    _, _, own = engine.cell.partition("/")[2].partition("/")
    where = f"{engine.device}, {own or precisions.partition(',')[0]}"
    roof = engine.roof
    return Ceilings(where, roof.flops_per_second, roof.convolution_flops_per_second, roof.bytes_per_second)


def _ceilings_in(document: LimitDocument) -> Iterator[Ceilings]:
    found = {(roof.device, roof.precision, roof.kind): roof.value for roof in document.roofs}
    for device, precision, kind in found:
        if kind == "gemm":
            product, convolution = (found.get((device, precision, one)) for one in ("gemm", "convolution"))
            assert product is not None
            yield Ceilings(f"{device}, {precision}", product, convolution, found.get((device, None, "triad")))


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


def _marks(engine: EngineLayers, number: int) -> Iterator[dict[str, Any]]:
    """A trace for each part; the legend has the cell once."""
    style, points = look(number), list(_points(engine))
    parts = [part for part in _MARKS if any(point.part == part for point in points)]
    for part in parts:
        chosen = [point for point in points if point.part == part]
        yield {
            "type": "scatter", "mode": "markers", "name": engine.cell, "legendgroup": engine.cell,
            "showlegend": part == parts[0],
            "x": [point.intensity for point in chosen],
            **with_intervals("y", [point.rate for point in chosen], [point.interval for point in chosen]),
            "text": [point.layer for point in chosen],
            "marker": {
                "color": style.colour, "symbol": f"{style.symbol}{_MARKS[part]}", "size": 10,
                "line": {"width": 1.5 if _MARKS[part] else 0},
            },
            "hovertemplate": (
                f"%{{text}}, {part}: %{{x:.3~g}} FLOP/B, %{{y:.3~s}}FLOP/s<extra>{engine.cell}</extra>"
            ),
        }  # fmt: skip


def _parts(points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    """Of the legend only: what filled and hollow marks are."""
    for part, mark in _MARKS.items():
        if any(point.part == part for point in points):
            yield {
                "type": "scatter", "mode": "markers", "name": part, "x": [None], "y": [None],
                "marker": {"color": GREY, "symbol": f"circle{mark}", "size": 9, "line": {"width": 1.5}},
            }  # fmt: skip


def _lines(ceilings: Sequence[Ceilings], across: Interval) -> Iterator[dict[str, Any]]:
    low, high = across
    for one in ceilings:
        prefix = _prefix(one, ceilings)
        product = f"{prefix}product: {units.number(one.product / 1e9)} GFLOP/s"
        yield _line(product, [max(low, one.ridge(one.product)), high], [one.product] * 2, "solid")
        if one.convolution:
            name = f"{prefix}convolution: {units.number(one.convolution / 1e9)} GFLOP/s"
            yield _line(name, [max(low, one.ridge(one.convolution)), high], [one.convolution] * 2, "dash")
        if one.memory:
            highest = max(one.product, one.convolution or 0.0)
            ends = [low, max(low, one.ridge(highest))]
            name = f"{prefix}memory: {units.number(one.memory / 1e9)} GB/s"
            yield _line(name, ends, [end * one.memory for end in ends], "dot")


def _line(name: str, x: list[float], y: list[float], dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "name",
        "line": {"color": "#000000", "width": 2, "dash": dash},
    }  # fmt: skip


def _prefix(one: Ceilings, several: Sequence[Ceilings]) -> str:
    return f"{one.where}: " if len(several) > 1 else ""


def _ridges(ceilings: Iterable[Ceilings]) -> Iterator[float]:
    """Where the roofs bend, which is always in the figure."""
    for one in ceilings:
        for roof in (one.product, one.convolution):
            if roof and one.memory:
                yield one.ridge(roof)


def _extent(values: Sequence[float]) -> Interval:
    return min(values) / _ROOM, max(values) * _ROOM


def _axes(
    across: Interval, named: Sequence[Named], rates: Sequence[float], ceilings: Sequence[Ceilings]
) -> dict[str, Any]:
    """Both axes, the names of the layers above, and the size."""
    tops = [roof for one in ceilings for roof in (one.product, one.convolution) if roof]
    low, high = min(rates, default=min(tops)) / _ROOM, max([*tops, *rates]) * _ROOM
    marks = labels(named, across, _WIDTH - _LEGEND - 90)
    room = 80 + max((len(text) for _, text in marks), default=0) * 6
    return {
        "width": _WIDTH,
        "height": _PLOT_HEIGHT + room + 50,
        "margin": {"t": room, "b": 50, "l": 70, "r": _LEGEND},
        "xaxis": _log(across) | {"title": {"text": "FLOP of a part a compulsory byte"}},
        "yaxis": _log((low, high)) | {"title": {"text": "FLOP/s, of the direct computation"}},
        "annotations": [
            {
                "x": math.log10(x), "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 2, "text": text,
                "textangle": -90, "showarrow": False, "font": {"size": 10, "color": GREY},
            }
            for x, text in marks
        ],
        "shapes": [
            {
                "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
                "line": {"color": "#cccccc", "width": 1, "dash": "dot"},
            }
            for x in dict.fromkeys(intensity for _, intensity in named)
        ],
    }  # fmt: skip


def _log(extent: Interval) -> dict[str, Any]:
    low, high = map(math.log10, extent)
    return {
        "type": "log", "range": [low, high], "dtick": "D2" if high - low < 3 else 1, "tickformat": "~s",
        "showgrid": False, "ticks": "outside", "showline": True, "linecolor": GREY, "mirror": True,
    }  # fmt: skip
