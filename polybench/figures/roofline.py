"""Roofline: the performance of each operation below the measured peaks of its machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polybench.figures.figure import (
    Figure,
    Interval,
    NoData,
    Trace,
    error_bars,
    escape_text,
    round_coordinate,
)
from polybench.figures.roofline_axes import HEIGHT, Roofline, axis_range, layout_for, roofline_traces
from polybench.figures.style import NEUTRAL, style_for
from polybench.networks.layers import Operation
from polybench.schema.layers import ConfigurationLayers, LayersDocument

_MARKS: dict[Operation, str] = {"forward": "", "input gradient": "-open", "weight gradient": "-open-dot"}
"""Operations with matrix products, and the suffix of their marker symbol."""


class Point(NamedTuple):
    """An operation of a layer: arithmetic intensity in FLOP/B, and FLOP/s with their interval."""

    layer: str
    operation: Operation
    intensity: float
    rate: float
    interval: Interval | None


def draw(document: LayersDocument) -> Figure:
    """Draw the operations of every configuration with cached peaks, below these peaks.

    Raises:
        NoData: no configuration has cached peaks.
    """
    settings = document.settings
    shown = [one for one in document.configurations if one.peak and list(_points(one))]
    rooflines = list(dict.fromkeys(_roofline_of(one, settings.precision) for one in shown))
    if not rooflines:
        command = f"--threads {settings.threads} --model {settings.model} --batch-size {settings.batch_size}"
        raise NoData(
            "no cached peak for these engines on this machine; on an idle machine, run"
            f" polybench peak {command}, then measure the layers again"
        )
    points = [point for one in shown for point in _points(one)]
    numbers = {one.configuration: number for number, one in enumerate(document.configurations)}
    marks = [trace for one in shown for trace in _marks(one, numbers[one.configuration])]
    x_range = axis_range((point.intensity for point in points), rooflines)
    positions = [(point.layer, point.intensity) for point in points]
    return Figure(
        title="Roofline of each layer",
        note=(
            "Lines are peaks measured on this machine: matrix products (gemm), convolutions and memory"
            " bandwidth. Operations further to the right compute more per byte moved; the distance below a"
            " line is lost performance. FLOPs assume direct computation. Bars are 95% intervals."
        ),
        traces=[*roofline_traces(rooflines, x_range), *marks, *_operation_legend(points)],
        layout=layout_for(x_range, positions, [point.rate for point in points], rooflines),
        height=HEIGHT,
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


def _marks(one: ConfigurationLayers, number: int) -> Iterator[Trace]:
    """Draw a trace per operation; the configuration appears in the legend once."""
    style, points, name = style_for(number), list(_points(one)), escape_text(one.configuration)
    operations = [operation for operation in _MARKS if any(point.operation == operation for point in points)]
    for operation in operations:
        selected = [point for point in points if point.operation == operation]
        rates = [point.rate for point in selected]
        coordinates = "%{x:.3~g} FLOP/B, %{y:.3~s}FLOP/s"
        yield {
            "type": "scatter", "mode": "markers", "name": name, "legendgroup": name,
            "showlegend": operation == operations[0],
            "x": [round_coordinate(point.intensity) for point in selected],
            "y": [*map(round_coordinate, rates)],
            "error_y": error_bars(rates, [point.interval for point in selected]),
            "text": [escape_text(point.layer) for point in selected],
            "marker": {
                "color": style.colour, "symbol": f"{style.symbol}{_MARKS[operation]}", "size": 10,
                "line": {"width": 1.5 if _MARKS[operation] else 0},
            },
            "hovertemplate": f"%{{text}}, {operation}: {coordinates}<extra>{name}</extra>",
        }  # fmt: skip


def _operation_legend(points: Sequence[Point]) -> Iterator[Trace]:
    """Add legend entries for filled and hollow marks."""
    for operation, mark in _MARKS.items():
        if any(point.operation == operation for point in points):
            yield {
                "type": "scatter", "mode": "markers", "name": operation, "x": [None], "y": [None],
                "marker": {
                    "color": NEUTRAL, "symbol": f"circle{mark}", "size": 9,
                    "line": {"width": 1.5, "color": NEUTRAL},
                },
            }  # fmt: skip
