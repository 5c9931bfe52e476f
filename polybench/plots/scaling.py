"""Throughput over what a sweep varied: a curve for each cell and each combination of the other axes."""

from __future__ import annotations

from typing import Any

from polybench.core.document.sweep import SweepDocument, SweepPoint, SweptCell
from polybench.plots.plot import Interval, NothingToDraw, Plot, Trace, error_bars, rounded, text
from polybench.plots.style import NEUTRAL, Look, look

Curve = list[tuple[SweepPoint, SweptCell]]


def draw(document: SweepDocument) -> Plot:
    """Images a second over the axis with the most values; hollow where there were more threads than cores.

    Raises:
        NothingToDraw: no point could be measured.
    """
    across = max(document.axes, key=lambda axis: len(document.axes[axis]))
    curves = _curves(document, across)
    if not curves:
        raise NothingToDraw("the sweep has no times: no point of it could be measured")
    values = document.axes[across]
    # Values that are doubled again and again stand as far from each other as the first two.
    kind = "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear"
    traces = [
        _trace(name, curve, across, look(number), document.unit)
        for number, (name, curve) in enumerate(curves.items())
    ]
    note = (
        "Bars are 95% intervals of the speed-up against the curve's first point, which has"
        " none; hollow marks have"
        " more threads than the machine has cores for."
    )
    if across == "threads":
        traces += [_ideal(curve, across) for curve in curves.values()]
        note += " Dotted: as many times as fast as there are threads."
    return Plot(
        title="Throughput of a sweep",
        note=note,
        traces=traces,
        layout={
            "xaxis": {
                "title": {"text": words(across)}, "type": kind, "tickvals": values,
                "ticktext": [f"{value:,}" for value in values],
            },
            "yaxis": {"title": {"text": f"{document.unit}s/s"}, "rangemode": "tozero", "tickformat": ",~g"},
            "margin": {"l": 84, "r": 24},
        },
        height=430,
    )  # fmt: skip


def _curves(document: SweepDocument, across: str) -> dict[str, Curve]:
    """By cell, with the values of the axes that are not drawn."""
    curves: dict[str, Curve] = {}
    for point in document.points:
        others = [f"{words(axis)} {value}" for axis, value in point.values.items() if axis != across]
        for cell in point.cells:
            if cell.samples_per_second is not None:
                curves.setdefault(", ".join([cell.cell, *others]), []).append((point, cell))
    return curves


def _trace(name: str, curve: Curve, across: str, style: Look, unit: str) -> Trace:
    rates = [cell.samples_per_second or 0.0 for _, cell in curve]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(name),
        "x": [point.values[across] for point, _ in curve],
        "y": [rounded(rate) for rate in rates],
        "error_y": error_bars(rates, [_interval(cell) for _, cell in curve]),
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "marker": {
            "color": style.colour,
            "size": 9,
            "symbol": [style.symbol + "-open" * point.oversubscribed for point, _ in curve],
        },
        "hovertemplate": f"{text(name)}, {words(across)} %{{x}}: %{{y:,.4~g}} {unit}s/s<extra></extra>",
    }


def _ideal(curve: Curve, across: str) -> dict[str, Any]:
    """From the first point on, in proportion."""
    point, cell = curve[0]
    first, rate = point.values[across], cell.samples_per_second or 0.0
    values = [one.values[across] for one, _ in curve]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": values,
        "y": [rounded(rate * value / first) for value in values],
        "line": {"color": NEUTRAL, "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _interval(cell: SweptCell) -> Interval | None:
    if cell.interval95 is None or not cell.speedup or cell.samples_per_second is None:
        return None
    first = cell.samples_per_second / cell.speedup
    low, high = cell.interval95
    return first * low, first * high


def words(axis: str) -> str:
    """`batch_size` as people write it."""
    return axis.replace("_", " ")
