"""Measured peaks of a machine, and the attainable performance of a network's layers below them."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.figures.figure import Figure, NoData, escape_text, round_coordinate
from polybench.figures.roofline_axes import (
    HEIGHT,
    Roofline,
    axis_range,
    layout_for,
    legend_prefix,
    roofline_traces,
)
from polybench.figures.style import style_for
from polybench.networks import find_model
from polybench.networks.timed_layers import split_layers
from polybench.schema.peak import PeakDocument


def draw(document: PeakDocument) -> Figure:
    """Draw a line for each peak, and a mark for each layer at its attainable performance.

    Raises:
        NoData: the document contains no peak.
    """
    rooflines = list(_rooflines(document))
    if not rooflines:
        raise NoData("no peak was measured; run polybench peak with an engine that is available")
    layers = [
        (layer.name, flops / moved)
        for layer in split_layers(document.network or find_model(document.model))
        if (flops := layer.flops("forward", document.batch_size))
        and (moved := layer.min_bytes_moved("forward", document.batch_size))
    ]
    x_range = axis_range((intensity for _, intensity in layers), rooflines)
    marks = [
        {
            "type": "scatter", "mode": "markers",
            "name": f"{escape_text(legend_prefix(roofline, rooflines))}attainable by a layer",
            "x": [round_coordinate(intensity) for _, intensity in layers],
            "y": [round_coordinate(roofline.attainable(intensity)) for _, intensity in layers],
            "text": [escape_text(name) for name, _ in layers],
            "marker": {
                "color": style_for(number).colour, "symbol": f"{style_for(number).symbol}-open", "size": 9,
                "line": {"width": 1.5},
            },
            "hovertemplate": "%{text}: %{x:.3~g} FLOP/B, at most %{y:.3~s}FLOP/s<extra></extra>",
        }
        for number, roofline in enumerate(rooflines)
    ]  # fmt: skip
    rates = [roofline.attainable(intensity) for roofline in rooflines for _, intensity in layers]
    return Figure(
        title=f"Attainable performance of {document.model}",
        note=(
            f"Lines are peaks measured on this machine. Marks are upper bounds for each layer's forward pass"
            f" with {document.batch_size} inputs: memory bandwidth limits layers left of the ridge point, the"
            " gemm peak those right of it."
        ),
        traces=[*roofline_traces(rooflines, x_range), *marks],
        layout=layout_for(x_range, layers, rates, rooflines),
        height=HEIGHT,
    )


def _rooflines(document: PeakDocument) -> Iterator[Roofline]:
    peaks = {(peak.device, peak.precision, peak.kind): peak.value for peak in document.peaks}
    for device, precision, kind in peaks:
        if kind == "gemm":
            gemm, convolution = (peaks.get((device, precision, one)) for one in ("gemm", "convolution"))
            assert gemm is not None
            bandwidth = peaks.get((device, None, "memory_bandwidth"))
            yield Roofline(f"{device}, {precision}", gemm, convolution, bandwidth)
