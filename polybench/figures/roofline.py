"""Rooflines: the operations of layers below measured peaks, and the peaks alone with each layer's upper bound.

The model is that of Williams, Waterman and Patterson (https://doi.org/10.1145/1498765.1498785): performance
over arithmetic intensity. FLOPs and bytes come from `networks.timed_layers`: direct computation, every value
moved once. The peaks are measured by `polybench peak` on the same machine, not taken from a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from polybench.figures.figure import (
    NEUTRAL,
    OPERATIONS,
    Figure,
    Interval,
    NoData,
    Trace,
    engine_colour,
    error_bars,
    escape_text,
    round_coordinate,
    scatter,
)
from polybench.networks import find_model
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import split_layers
from polybench.schema import units
from polybench.schema.measurements import ConfigurationLayers, LayersDocument, PeakDocument

_HEIGHT = 470
"""Height of a figure with layer names in pixels."""
_PLOT_WIDTH, _PLOT_HEIGHT = 810, 400
"""Approximate size of the area between the axes in pixels, to place the layer names."""
_LETTER_WIDTH = 6.0
_LINE_HEIGHT = 14.0
"""Size of layer names in pixels."""
_MIN_DISTANCE = 13.0
"""Distance in pixels below which layers share a label."""
_PADDING = 1.6
"""Factor by which an axis extends beyond the data at either end."""

_MARKS: dict[Operation, str] = {
    "forward": "triangle-right",
    "input gradient": "triangle-left",
    "weight gradient": "triangle-down",
}
"""Operations with matrix products, and their marker symbols."""

LayerPosition = tuple[str, float]
"""A layer's name, and its arithmetic intensity in FLOP/B."""


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


class Point(NamedTuple):
    """An operation of a layer: arithmetic intensity in FLOP/B, and FLOP/s with their interval."""

    layer: str
    operation: Operation
    intensity: float
    rate: float
    interval: Interval | None


def draw(document: LayersDocument) -> Figure:
    """Draw the operations of every configuration with cached peaks, below these peaks."""
    settings = document.settings
    points = {one.configuration: list(_points(one)) for one in document.configurations if one.peak}
    shown = [one for one in document.configurations if points.get(one.configuration)]
    rooflines = list(dict.fromkeys(_roofline_of(one, settings.precision) for one in shown))
    if not rooflines:
        command = f"--threads {settings.threads} --model {settings.model} --batch-size {settings.batch_size}"
        raise NoData(
            "no cached peak for these engines on this machine; on an idle machine, run"
            f" polybench peak {command}, then measure the layers again"
        )
    all_points = [point for one in shown for point in points[one.configuration]]
    marks = [trace for one in shown for trace in _marks(one.configuration, points[one.configuration])]
    return _figure(
        title="Roofline of each layer",
        note=(
            "Lines are peaks measured on this machine: matrix products (gemm), convolutions and memory"
            " bandwidth. Operations further to the right compute more per byte moved; the distance below a"
            " line is lost performance. FLOPs assume direct computation. Bars are 95% intervals."
        ),
        traces=[*marks, *_operation_legend(all_points)],
        rooflines=rooflines,
        positions=[(point.layer, point.intensity) for point in all_points],
        rates=[point.rate for point in all_points],
    )


def draw_peak(document: PeakDocument) -> Figure:
    """Draw a line for each peak, and a mark for each layer at its attainable performance."""
    peaks = {(peak.device, peak.precision, peak.kind): peak.value for peak in document.peaks}
    rooflines = [
        Roofline(
            f"{device}, {precision}",
            value,
            peaks.get((device, precision, "convolution")),
            peaks.get((device, None, "memory_bandwidth")),
        )
        for (device, precision, kind), value in peaks.items()
        if kind == "gemm"
    ]
    if not rooflines:
        raise NoData("no peak was measured; run polybench peak with an engine that is available")
    layers = [
        (layer.name, flops / moved)
        for layer in split_layers(document.network or find_model(document.model))
        if (flops := layer.flops("forward", document.batch_size))
        and (moved := layer.min_bytes_moved("forward", document.batch_size))
    ]
    intensities = [intensity for _, intensity in layers]
    marks = [
        scatter(
            "markers",
            intensities,
            map(roofline.attainable, intensities),
            name=f"{_legend_prefix(roofline, rooflines)}attainable by a layer",
            tooltips=[
                f"{name}: at most {_rate(roofline.attainable(intensity))} ({_intensity(intensity)})"
                for name, intensity in layers
            ],
            marker={"color": OPERATIONS[number % len(OPERATIONS)], "symbol": "diamond", "size": 9},
        )
        for number, roofline in enumerate(rooflines)
    ]
    return _figure(
        title=f"Attainable performance of {document.model}",
        note=(
            f"Lines are peaks measured on this machine. Marks are upper bounds for each layer's forward pass"
            f" with {document.batch_size} inputs: memory bandwidth limits layers left of the ridge point, the"
            " gemm peak those right of it."
        ),
        traces=marks,
        rooflines=rooflines,
        positions=layers,
        rates=[roofline.attainable(intensity) for roofline in rooflines for intensity in intensities],
    )


def _roofline_of(one: ConfigurationLayers, precisions: str) -> Roofline:
    """Build the roofline of a configuration, whose name contains its precision unless it is the first."""
    assert one.peak is not None
    _, _, precision = one.configuration.partition("/")[2].partition("/")
    label = f"{one.device}, {precision or precisions.partition(',')[0]}"
    peak = one.peak
    return Roofline(label, peak.flops_per_second, peak.convolution_flops_per_second, peak.bytes_per_second)


def _points(one: ConfigurationLayers) -> Iterator[Point]:
    """Yield the operations with a positive time; subtracting the call overhead may leave a negative one."""
    for row in one.rows:
        if row.flops and row.min_bytes_moved and row.seconds_per_step > 0:
            low, high = row.ci95 or (0.0, 0.0)
            yield Point(
                row.layer,
                row.operation,
                row.flops / row.min_bytes_moved,
                row.flops / row.seconds_per_step,
                (row.flops / high, row.flops / low) if low > 0 else None,
            )


def _marks(configuration: str, points: Sequence[Point]) -> Iterator[Trace]:
    """Draw a trace per operation; the configuration appears in the legend once."""
    operations = [operation for operation in _MARKS if any(point.operation == operation for point in points)]
    for operation in operations:
        selected = [point for point in points if point.operation == operation]
        rates = [point.rate for point in selected]
        yield scatter(
            "markers",
            [point.intensity for point in selected],
            rates,
            configuration=configuration,
            showlegend=operation == operations[0],
            error_y=error_bars(rates, [point.interval for point in selected]),
            tooltips=[
                f"{configuration}, {point.layer}, {operation}: {_rate(point.rate)} ({_intensity(point.intensity)})"
                for point in selected
            ],
            marker={"color": engine_colour(configuration), "symbol": _MARKS[operation], "size": 11},
        )


def _operation_legend(points: Sequence[Point]) -> Iterator[Trace]:
    """Add a legend entry for the symbol of each operation."""
    for operation, symbol in _MARKS.items():
        if any(point.operation == operation for point in points):
            marker = {"color": NEUTRAL, "symbol": symbol, "size": 11}
            yield scatter("markers", [None], [None], name=operation, marker=marker)


def _rate(flops_per_second: float) -> str:
    return f"{units.format_number(flops_per_second / 1e9)} GFLOP/s"


def _intensity(value: float) -> str:
    return f"{units.format_number(value)} FLOP/B"


def _figure(
    *,
    title: str,
    note: str,
    traces: Sequence[Trace],
    rooflines: Sequence[Roofline],
    positions: Sequence[LayerPosition],
    rates: Sequence[float],
) -> Figure:
    """Draw the rooflines below the traces, with layer names in an empty band at the bottom."""
    peaks = [peak for roofline in rooflines for peak in (roofline.gemm, roofline.convolution) if peak]
    ridges = [
        roofline.ridge(peak)
        for roofline in rooflines
        for peak in (roofline.gemm, roofline.convolution)
        if peak and roofline.memory_bandwidth
    ]
    intensities = [intensity for _, intensity in positions]
    x_range = min([*intensities, *ridges]) / _PADDING, max([*intensities, *ridges]) * _PADDING
    low, high = min(rates, default=min(peaks)) / _PADDING, max([*peaks, *rates]) * _PADDING
    labels = place_labels(positions, x_range, _PLOT_WIDTH)
    band = min(8 + _LINE_HEIGHT * (1 + max((label.line for label in labels), default=0)), _PLOT_HEIGHT / 2)
    low /= (high / low) ** (band / (_PLOT_HEIGHT - band))
    layout: dict[str, Any] = {
        "xaxis": _log_axis(x_range) | {"title": {"text": "arithmetic intensity, FLOP/B"}},
        "yaxis": _log_axis((low, high)) | {"title": {"text": "FLOP/s"}},
        "margin": {"l": 72, "r": 24},
        "annotations": [
            {
                "x": math.log10(label.x), "y": 0, "yref": "paper", "yanchor": "bottom",
                "yshift": 2 + _LINE_HEIGHT * label.line, "text": escape_text(label.text), "showarrow": False,
                "font": {"size": 10},
            }
            for label in labels
        ],
        "shapes": [
            {
                "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
                "line": {"color": "rgba(128,128,128,0.35)", "width": 1, "dash": "dot"},
            }
            for x in dict.fromkeys(map(round_coordinate, intensities))
        ],
    }  # fmt: skip
    lines = [line for roofline in rooflines for line in _lines(roofline, _legend_prefix(roofline, rooflines), x_range)]
    return Figure(title, note, [*lines, *traces], layout, _HEIGHT)


def _legend_prefix(roofline: Roofline, rooflines: Sequence[Roofline]) -> str:
    """Format a prefix with device and precision, if there are several rooflines."""
    return f"{roofline.label}: " if len(rooflines) > 1 else ""


def _lines(roofline: Roofline, prefix: str, x_range: Interval) -> Iterator[Trace]:
    """Draw gemm solid, convolution dashed and memory dotted, with their values in the legend."""
    low, high = x_range
    gemm, convolution, bandwidth = roofline.gemm, roofline.convolution, roofline.memory_bandwidth
    name = f"{prefix}gemm: {_rate(gemm)}"
    yield _line(name, [max(low, roofline.ridge(gemm)), high], [gemm] * 2, "solid")
    if convolution:
        name = f"{prefix}convolution: {_rate(convolution)}"
        yield _line(name, [max(low, roofline.ridge(convolution)), high], [convolution] * 2, "dash")
    if bandwidth:
        ends = [low, max(low, roofline.ridge(max(gemm, convolution or 0.0)))]
        name = f"{prefix}memory bandwidth: {units.format_number(bandwidth / 1e9)} GB/s"
        yield _line(name, ends, [end * bandwidth for end in ends], "dot")


def _line(name: str, x: list[float], y: list[float], dash: str) -> Trace:
    line = {"color": NEUTRAL, "width": 2, "dash": dash}
    return scatter("lines", x, y, name=name, tooltips=[name] * len(x), line=line)


def _log_axis(ends: Interval) -> dict[str, Any]:
    low, high = map(math.log10, ends)
    step = "D2" if high - low < 3 else 1
    return {"type": "log", "range": [low, high], "dtick": step, "tickformat": "~s", "showgrid": False}


class Label(NamedTuple):
    """Position of a text on the axis, and its line, counted from the bottom."""

    x: float
    line: int
    text: str


def place_labels(layers: Sequence[LayerPosition], axis: Interval, width: float) -> list[Label]:
    """Place the names of layers; close layers share a label at their centre, and no labels overlap.

    Args:
        layers: a name may occur at several positions.
        axis: range of the logarithmic axis.
        width: of the axis in pixels.
    """
    low, high = map(math.log10, axis)
    scale = width / (high - low)
    groups: list[list[tuple[float, str]]] = []
    for position in sorted((math.log10(x) * scale, name) for name, x in dict.fromkeys(layers)):
        if groups and position[0] - groups[-1][-1][0] < _MIN_DISTANCE:
            groups[-1].append(position)
        else:
            groups.append([position])
    order = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in layers))}
    ends: list[float] = []
    """Right ends of the lines."""
    labels = []
    for group in groups:
        x, text = fmean(position for position, _ in group), _combine((name for _, name in group), order)
        start, end = (x + sign * _LETTER_WIDTH * (len(text) + 1) / 2 for sign in (-1, 1))
        line = next((number for number, taken in enumerate(ends) if taken <= start), len(ends))
        ends[line : line + 1] = [end]
        labels.append(Label(10 ** (x / scale), line, text))
    return labels


def _combine(names: Iterable[str], order: dict[str, int]) -> str:
    """Join up to two names in network order; of more, name the first and count the others."""
    plain = [name.removesuffix(" + relu") for name in sorted(set(names), key=order.__getitem__)]
    return ", ".join(plain) if len(plain) <= 2 else f"{plain[0]} and {len(plain) - 1} more"
