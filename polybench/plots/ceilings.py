"""The measured roofs of a machine as lines, and the axes of every figure that has them.

The roofline is that of Williams, Waterman and Patterson (https://doi.org/10.1145/1498765.1498785): what is
reached over the FLOP that each byte is good for. FLOP and bytes are those of `core.pieces`: the direct
computation, and each value moved once. The roofs are those of `polybench limit`, reached on the same machine,
not a data sheet's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from polybench.core import units
from polybench.plots.plot import Interval, Trace, rounded, text
from polybench.plots.roofline_labels import Named, labels
from polybench.plots.style import NEUTRAL

HEIGHT = 470
"""px of a figure with names of layers in it."""
_WIDTH, _INSIDE = 810, 400
"""px of the area between the axes, about: by them the names of layers are kept apart."""
_LETTER = 6.0
"""px of a name's letter, which stands upright."""

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


def extent(intensities: Iterable[float], ceilings: Sequence[Ceilings]) -> Interval:
    """Of the axis of FLOP a byte; where the roofs bend is always in it."""
    values = [*intensities, *_ridges(ceilings)]
    return min(values) / _ROOM, max(values) * _ROOM


def _ridges(ceilings: Iterable[Ceilings]) -> Iterator[float]:
    for one in ceilings:
        for roof in (one.product, one.convolution):
            if roof and one.memory:
                yield one.ridge(roof)


def lines(ceilings: Sequence[Ceilings], across: Interval) -> Iterator[Trace]:
    """Products solid, convolutions dashed, memory dotted, each with its number in the legend."""
    low, high = across
    for one in ceilings:
        before = prefix(one, ceilings)
        product = f"{before}product: {units.number(one.product / 1e9)} GFLOP/s"
        yield _line(product, [max(low, one.ridge(one.product)), high], [one.product] * 2, "solid")
        if one.convolution:
            name = f"{before}convolution: {units.number(one.convolution / 1e9)} GFLOP/s"
            yield _line(name, [max(low, one.ridge(one.convolution)), high], [one.convolution] * 2, "dash")
        if one.memory:
            highest = max(one.product, one.convolution or 0.0)
            ends = [low, max(low, one.ridge(highest))]
            name = f"{before}memory: {units.number(one.memory / 1e9)} GB/s"
            yield _line(name, ends, [end * one.memory for end in ends], "dot")


def _line(name: str, x: list[float], y: list[float], dash: str) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "name": text(name), "hoverinfo": "name",
        "x": [*map(rounded, x)], "y": [*map(rounded, y)],
        "line": {"color": NEUTRAL, "width": 2, "dash": dash},
    }  # fmt: skip


def prefix(one: Ceilings, several: Sequence[Ceilings]) -> str:
    """Before the name of a roof: where it was measured, if there are others."""
    return f"{one.where}: " if len(several) > 1 else ""


def axes(
    across: Interval, named: Sequence[Named], rates: Sequence[float], ceilings: Sequence[Ceilings]
) -> dict[str, Any]:
    """Both axes, and the names of the layers upright at the foot, in a part that no mark is in."""
    tops = [roof for one in ceilings for roof in (one.product, one.convolution) if roof]
    low, high = min(rates, default=min(tops)) / _ROOM, max([*tops, *rates]) * _ROOM
    marks = labels(named, across, _WIDTH)
    foot = min(8 + _LETTER * max((len(name) for _, name in marks), default=0), _INSIDE / 2)
    low /= (high / low) ** (foot / (_INSIDE - foot))
    return {
        "xaxis": _log(across) | {"title": {"text": "FLOP of a part a compulsory byte"}},
        "yaxis": _log((low, high)) | {"title": {"text": "FLOP/s, of the direct computation"}},
        "margin": {"l": 72, "r": 24},
        "annotations": [
            {
                "x": math.log10(x), "y": 0, "yref": "paper", "yanchor": "bottom", "yshift": 4,
                "text": text(name), "textangle": -90, "showarrow": False, "font": {"size": 10},
            }
            for x, name in marks
        ],
        "shapes": [
            {
                "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
                "line": {"color": "rgba(128,128,128,0.35)", "width": 1, "dash": "dot"},
            }
            for x in dict.fromkeys(rounded(intensity) for _, intensity in named)
        ],
    }  # fmt: skip


def _log(ends: Interval) -> dict[str, Any]:
    low, high = map(math.log10, ends)
    step = "D2" if high - low < 3 else 1
    return {"type": "log", "range": [low, high], "dtick": step, "tickformat": "~s", "showgrid": False}
