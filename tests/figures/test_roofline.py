"""Roofline figures: peaks, layers below them, and readable labels."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.figures import draw
from polybench.figures.figure import Figure, Trace
from polybench.figures.image_export import caption_for
from polybench.figures.roofline import place_labels
from polybench.networks import find_model
from polybench.networks.timed_layers import split_layers
from polybench.schema.measurements import LayerRow, LayersDocument, PeakDocument, PeakMeasurement
from polybench.schema.resources import PeakComparison
from tests.render.test_layers import document as layers_document
from tests.render.test_peak import document

__all__ = ["document", "layers_document"]

PEAK = PeakComparison(100e9, 0.3, "matrix product", convolution_flops_per_second=50e9, bytes_per_second=10e9)


@pytest.fixture
def layers(layers_document: LayersDocument) -> LayersDocument:
    """Create a memory-bound and a compute-bound layer of 10 MB each; only torch has peaks."""
    flux, torch, *others = layers_document.configurations
    rows = [
        operation_row("conv1 + relu", "forward", 2e-3, 80_000_000),
        operation_row("conv1 + relu", "weight gradient", 1e-3, 80_000_000),
        operation_row("dense1", "input gradient", 1e-3, 10_000_000),
        operation_row("dense1", "weight gradient", -1e-6, 10_000_000),  # less than the call overhead
        LayerRow(layer="conv1 + relu", operation="relu gradient", seconds_per_step=1e-3, ci95=None),
    ]
    torch = msgspec.structs.replace(torch, rows=rows, peak=PEAK)
    return msgspec.structs.replace(layers_document, configurations=[flux, torch, *others])


def operation_row(layer: str, operation: Any, seconds: float, flops: int) -> LayerRow:
    interval = 0.8 * seconds, 1.25 * seconds
    return LayerRow(
        layer=layer, operation=operation, seconds_per_step=seconds, ci95=interval, flops=flops,
        min_bytes_moved=10_000_000,
    )  # fmt: skip


def by_name(figure: Figure) -> dict[str, Trace]:
    return {trace["name"]: trace for trace in figure.traces}


def test_peaks_and_memory_bandwidth_meet_at_ridge_points(layers: LayersDocument) -> None:
    lines = by_name(draw("roofline", layers))
    gemm, memory = lines["gemm: 100 GFLOP/s"], lines["memory bandwidth: 10.0 GB/s"]
    assert gemm["x"][0] == memory["x"][1] == pytest.approx(10)  # FLOP/B
    assert gemm["y"] == [100e9, 100e9]
    assert memory["y"] == pytest.approx([10e9 * x for x in memory["x"]])
    assert lines["convolution: 50.0 GFLOP/s"]["x"][0] == pytest.approx(5)
    all_lines = (gemm, memory, lines["convolution: 50.0 GFLOP/s"])
    assert len({line["line"]["dash"] for line in all_lines}) == 3


def test_the_line_of_the_memory_reaches_the_higher_peak(layers: LayersDocument) -> None:
    torch = layers.configurations[1]
    torch.peak = msgspec.structs.replace(PEAK, convolution_flops_per_second=200e9)
    memory = by_name(draw("roofline", layers))["memory bandwidth: 10.0 GB/s"]
    assert (memory["x"][1], memory["y"][1]) == (pytest.approx(20), pytest.approx(200e9))


def test_each_operation_with_matrix_products_is_a_point_with_its_interval(layers: LayersDocument) -> None:
    traces = draw("roofline", layers).traces
    points = [trace for trace in traces if trace.get("legendgroup") == "torch/cpu"]
    values = {
        (text.split(", ")[1], trace["marker"]["symbol"]): (x, y, y - below, y + above)
        for trace in points
        for text, x, y, above, below in zip(
            *(trace[name] for name in ("hovertext", "x", "y")),
            *(trace["error_y"][name] for name in ("array", "arrayminus")),
            strict=True,
        )
    }
    assert {name: [*map(pytest.approx, point)] for name, point in values.items()} == {
        ("conv1 + relu", "triangle-right"): [8, 40e9, 32e9, 50e9],
        ("conv1 + relu", "triangle-down"): [8, 80e9, 64e9, 100e9],
        ("dense1", "triangle-left"): [1, 10e9, 8e9, 12.5e9],
    }
    assert [trace["showlegend"] for trace in points] == [True, False, False]


def test_caption_names_the_cpu_but_not_the_host(layers: LayersDocument) -> None:
    caption = caption_for(layers)
    for text in ("Some CPU @ 2.00GHz, 2 cores", "2 threads", "fp32", "2025-01-01"):
        assert text in caption
    assert layers.host.hostname == "host"
    assert " host" not in caption.replace(layers.id, "")


def test_labels_are_at_their_layers_and_marks_inside_the_axes(layers: LayersDocument) -> None:
    figure = draw("roofline", layers)
    assert [(one["text"], round(10 ** one["x"], 3)) for one in figure.layout["annotations"]] == [
        ("dense1", 1), ("conv1", 8),
    ]  # fmt: skip
    for axis, values in (("x", "x"), ("y", "y")):
        low, high = (10**end for end in figure.layout[f"{axis}axis"]["range"])
        marks = [v for trace in figure.traces if trace["mode"] == "markers" for v in trace[values] if v is not None]
        assert low < min(marks) <= max(marks) < high


def test_missing_peak_is_reported_with_the_command(layers_document: LayersDocument) -> None:
    with pytest.raises(BadInput, match="polybench peak --threads 2 --model lenet --batch-size 128"):
        draw("roofline", layers_document)


def test_peak_figure_shows_attainable_performance_of_layers(document: PeakDocument) -> None:
    lines = by_name(draw("peak", document))
    assert lines["gemm: 123 GFLOP/s"]["y"] == [1.234e11, 1.234e11]
    assert lines["memory bandwidth: 15.0 GB/s"]
    assert "convolution" not in " ".join(lines)  # not measured
    attainable = lines["attainable by a layer"]
    assert [text.partition(":")[0] for text in attainable["hovertext"]] == [
        "conv1 + relu", "conv2 + relu", "dense1", "dense2", "dense3",
    ]  # fmt: skip
    conv2 = split_layers(find_model("lenet"))[2]
    flops, moved = conv2.flops("forward", 128), conv2.min_bytes_moved("forward", 128)
    assert flops is not None
    assert moved is not None
    assert attainable["x"][1] == pytest.approx(flops / moved, rel=1e-5)
    assert attainable["y"] == pytest.approx([min(1.234e11, 1.5e10 * x) for x in attainable["x"]], rel=1e-5)
    assert min(attainable["y"]) < 1.234e11 == max(attainable["y"])


def test_each_precision_has_lines(document: PeakDocument) -> None:
    gemm: PeakMeasurement = document.peaks[0]
    document.peaks.append(msgspec.structs.replace(gemm, precision="tf32", value=2e11))
    names = by_name(draw("peak", document))
    assert {"cpu, fp32: gemm: 123 GFLOP/s", "cpu, tf32: gemm: 200 GFLOP/s"} <= set(names)
    document.peaks.clear()
    with pytest.raises(BadInput, match="no peak was measured"):
        draw("peak", document)


def test_close_layers_share_a_label() -> None:
    positions = [("conv1 + relu", 10.0), *((f"block{n} + relu", 20 + n / 10) for n in range(5)), ("dense", 5.0)]
    assert place_labels(positions, (1.0, 100.0), 600.0) == [
        (pytest.approx(5), 0, "dense"),
        (pytest.approx(10), 0, "conv1"),
        (pytest.approx(20.2, rel=1e-3), 0, "block0 and 4 more"),
    ]
    assert [label.text for label in place_labels([("b", 2.0), ("a", 2.01)], (1.0, 100.0), 600.0)] == ["b, a"]


def test_labels_do_not_overlap() -> None:
    layers = [(f"layer number {number}", 2.0 * 1.2**number) for number in range(12)]
    labels = place_labels(layers, (1.0, 100.0), 600.0)
    ends: dict[int, float] = {}
    for label in labels:
        middle, width = 300 * math.log10(label.x), 6 * len(label.text)
        assert middle - width / 2 >= ends.get(label.line, 0.0)
        ends[label.line] = middle + width / 2
    assert 1 < len(ends) < len(labels)
