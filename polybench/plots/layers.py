"""Where the time of a step goes: layers from top to bottom, a bar for each cell, its parts stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from polybench.core.document.layers import STEP, EngineLayers, LayersDocument, Part
from polybench.export.layers_rows import RESIDUE
from polybench.plots.plot import NothingToDraw, Plot, Trace, left_margin, rounded, text
from polybench.plots.style import look

_PARTS: tuple[str, ...] = get_args(Part)

Row = tuple[str, str]
"""Layer and cell, as plotly's text."""


def draw(document: LayersDocument) -> Plot:
    """Bars in the order of the network; what belongs to the step and the residue come last.

    Raises:
        NothingToDraw: no layer has a time.
    """
    engines = timed_layers(document)
    layers = [*dict.fromkeys(row.layer for engine in engines for row in engine.rows)]
    if any(engine.residue_seconds is not None for engine in engines):
        layers.append(RESIDUE[0])
    layers.sort(key=lambda layer: (layer == STEP) + 2 * (layer == RESIDUE[0]))
    parts = [part for part in _PARTS if any(row.part == part for engine in engines for row in engine.rows)]
    rows = [(text(layer), text(engine.cell)) for layer in layers for engine in engines]
    traces = [_bars(number, part, engines, rows) for number, part in enumerate(parts)]
    if RESIDUE[0] in layers:
        traces.append(_residues(len(parts), engines, rows))
    cells = [text(engine.cell) for engine in engines]
    return Plot(
        title="Time of each layer",
        note=(
            "Each layer replayed alone, beside whole steps. forward has the ReLU's, activation"
            " is the gradient through"
            " it; the residue is a whole step less its parts, below 0 where parts are fused or"
            " run side by side."
        ),
        traces=traces,
        layout={
            "barmode": "relative",
            "bargap": 0.2,
            "xaxis": {"title": {"text": "ms a step"}, "zeroline": True},
            "yaxis": {
                "type": "multicategory", "autorange": "reversed", "ticks": "", "showgrid": False,
                "dividercolor": "rgba(128,128,128,0.35)", "tickfont": {"size": 11},
            },
            "margin": {"l": left_margin(cells) + left_margin(map(text, layers)), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + 17 * len(rows),
    )  # fmt: skip


def timed_layers(document: LayersDocument) -> list[EngineLayers]:
    """The cells whose layers have times; raises NothingToDraw where none has."""
    if not (engines := [engine for engine in document.engines if engine.rows]):
        why = "; ".join(f"{one.cell}: {one.reason or one.status}" for one in document.engines)
        raise NothingToDraw(f"{document.id} has no times of layers: {why or 'nothing was measured'}")
    return engines


def _bars(number: int, part: str, engines: Sequence[EngineLayers], rows: Sequence[Row]) -> Trace:
    times = {
        (text(row.layer), text(engine.cell)): row.seconds_per_step
        for engine in engines
        for row in engine.rows
        if row.part == part
    }
    return _trace(number, part, rows, times)


def _residues(number: int, engines: Sequence[EngineLayers], rows: Sequence[Row]) -> Trace:
    times = {
        (RESIDUE[0], text(engine.cell)): engine.residue_seconds
        for engine in engines
        if engine.residue_seconds is not None
    }
    return _trace(number, RESIDUE[0], rows, times)


def _trace(number: int, name: str, rows: Sequence[Row], times: dict[Row, float]) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [[layer for layer, _ in rows], [cell for _, cell in rows]],
        "x": [rounded(1e3 * times[row]) if row in times else None for row in rows],
        "marker": look(number).filled,
        "hovertemplate": f"%{{y}}, {name}: %{{x:.4~g}} ms<extra></extra>",
    }
