"""Roofline model: measured peaks as lines, and the axes of figures that show them.

The model is that of Williams, Waterman and Patterson (https://doi.org/10.1145/1498765.1498785): performance
over arithmetic intensity. FLOPs and bytes come from `networks.timed_layers`: direct computation, every value
moved once. The peaks are measured by `polybench peak` on the same machine, not taken from a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from polybench.figures.figure import Interval, Trace, escape_text, round_coordinate
from polybench.figures.roofline_labels import LayerPosition, place_labels
from polybench.figures.style import NEUTRAL
from polybench.schema import units

HEIGHT = 470
"""Height of a figure with layer names in pixels."""
_PLOT_WIDTH, _PLOT_HEIGHT = 810, 400
"""Approximate size of the area between the axes in pixels, to place the layer names."""
_LETTER_HEIGHT = 6.0
"""Height of a letter of vertical text in pixels."""

_PADDING = 1.6
"""Factor by which an axis extends beyond the data at either end."""


class Roofline(NamedTuple):
    """Peaks of one device in one precision, in FLOP/s and B/s; None if not measured."""

    label: str
    gemm: float
    convolution: float | None
    memory_bandwidth: float | None

    def ridge(self, peak: float) -> float:
        """Compute the arithmetic intensity in FLOP/B above which memory does not limit this peak."""
        return peak / self.memory_bandwidth if self.memory_bandwidth else 0.0

    def attainable(self, intensity: float) -> float:
        """Compute the FLOP/s that the gemm peak and the memory bandwidth allow."""
        return min(self.gemm, intensity * self.memory_bandwidth) if self.memory_bandwidth else self.gemm


def axis_range(intensities: Iterable[float], rooflines: Sequence[Roofline]) -> Interval:
    """Compute the range of the intensity axis, which contains all ridge points."""
    values = [*intensities, *_ridges(rooflines)]
    return min(values) / _PADDING, max(values) * _PADDING


def _ridges(rooflines: Iterable[Roofline]) -> Iterator[float]:
    for roofline in rooflines:
        for peak in (roofline.gemm, roofline.convolution):
            if peak and roofline.memory_bandwidth:
                yield roofline.ridge(peak)


def roofline_traces(rooflines: Sequence[Roofline], x_range: Interval) -> Iterator[Trace]:
    """Draw gemm solid, convolution dashed and memory dotted, with their values in the legend."""
    low, high = x_range
    for roofline in rooflines:
        prefix = legend_prefix(roofline, rooflines)
        gemm, convolution, bandwidth = roofline.gemm, roofline.convolution, roofline.memory_bandwidth
        name = f"{prefix}gemm: {units.format_number(gemm / 1e9)} GFLOP/s"
        yield _line(name, [max(low, roofline.ridge(gemm)), high], [gemm] * 2, "solid")
        if convolution:
            name = f"{prefix}convolution: {units.format_number(convolution / 1e9)} GFLOP/s"
            yield _line(name, [max(low, roofline.ridge(convolution)), high], [convolution] * 2, "dash")
        if bandwidth:
            highest = max(gemm, convolution or 0.0)
            ends = [low, max(low, roofline.ridge(highest))]
            name = f"{prefix}memory bandwidth: {units.format_number(bandwidth / 1e9)} GB/s"
            yield _line(name, ends, [end * bandwidth for end in ends], "dot")


def _line(name: str, x: list[float], y: list[float], dash: str) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "name": escape_text(name), "hoverinfo": "name",
        "x": [*map(round_coordinate, x)], "y": [*map(round_coordinate, y)],
        "line": {"color": NEUTRAL, "width": 2, "dash": dash},
    }  # fmt: skip


def legend_prefix(roofline: Roofline, rooflines: Sequence[Roofline]) -> str:
    """Format a prefix with device and precision, if there are several rooflines."""
    return f"{roofline.label}: " if len(rooflines) > 1 else ""


def layout_for(
    x_range: Interval, layers: Sequence[LayerPosition], rates: Sequence[float], rooflines: Sequence[Roofline]
) -> dict[str, Any]:
    """Describe both axes, with vertical layer names in an empty band at the bottom."""
    peaks = [peak for roofline in rooflines for peak in (roofline.gemm, roofline.convolution) if peak]
    low, high = min(rates, default=min(peaks)) / _PADDING, max([*peaks, *rates]) * _PADDING
    labels = place_labels(layers, x_range, _PLOT_WIDTH)
    band = min(8 + _LETTER_HEIGHT * max((len(name) for _, name in labels), default=0), _PLOT_HEIGHT / 2)
    low /= (high / low) ** (band / (_PLOT_HEIGHT - band))
    return {
        "xaxis": _log_axis(x_range) | {"title": {"text": "arithmetic intensity, FLOP/B"}},
        "yaxis": _log_axis((low, high)) | {"title": {"text": "FLOP/s"}},
        "margin": {"l": 72, "r": 24},
        "annotations": [
            {
                "x": math.log10(x), "y": 0, "yref": "paper", "yanchor": "bottom", "yshift": 4,
                "text": escape_text(name), "textangle": -90, "showarrow": False, "font": {"size": 10},
            }
            for x, name in labels
        ],
        "shapes": [
            {
                "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
                "line": {"color": "rgba(128,128,128,0.35)", "width": 1, "dash": "dot"},
            }
            for x in dict.fromkeys(round_coordinate(intensity) for _, intensity in layers)
        ],
    }  # fmt: skip


def _log_axis(ends: Interval) -> dict[str, Any]:
    low, high = map(math.log10, ends)
    step = "D2" if high - low < 3 else 1
    return {"type": "log", "range": [low, high], "dtick": step, "tickformat": "~s", "showgrid": False}
