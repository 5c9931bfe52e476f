"""The roofline: roofs where they were measured, layers where they are, and every name to be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.core.document.layers import LayerRow, LayersDocument
from polybench.core.document.limit import LimitDocument, MeasuredRoof
from polybench.core.document.resources import Roof
from polybench.core.errors import BadInput
from polybench.core.pieces import pieces
from polybench.models import find_model
from polybench.plots import draw
from polybench.plots.plot import Plot, Trace
from polybench.plots.provenance import provenance
from polybench.plots.roofline_labels import labels
from tests.export.test_layers import document as layers_document
from tests.export.test_limit import document

__all__ = ["document", "layers_document"]

ROOF = Roof(100e9, 0.3, "a product", convolution_flops_per_second=50e9, bytes_per_second=10e9)


@pytest.fixture
def layers(layers_document: LayersDocument) -> LayersDocument:
    """One that memory limits and one that it does not, of 10 MB each; without a roof, flux has none."""
    flux, torch, *others = layers_document.engines
    rows = [
        part("conv1 + relu", "forward", 2e-3, 80_000_000),
        part("conv1 + relu", "weight gradient", 1e-3, 80_000_000),
        part("dense1", "data gradient", 1e-3, 10_000_000),
        part("dense1", "weight gradient", -1e-6, 10_000_000),  # less than asking for nothing
        LayerRow(layer="conv1 + relu", part="activation", seconds_per_step=1e-3, interval95=None),
    ]
    torch = msgspec.structs.replace(torch, rows=rows, roof=ROOF)
    return msgspec.structs.replace(layers_document, engines=[flux, torch, *others])


def part(layer: str, part: Any, seconds: float, flop: int) -> LayerRow:
    interval = 0.8 * seconds, 1.25 * seconds
    return LayerRow(
        layer=layer, part=part, seconds_per_step=seconds, interval95=interval, flop=flop,
        compulsory_bytes=10_000_000,
    )  # fmt: skip


def by_name(plot: Plot) -> dict[str, Trace]:
    return {trace["name"]: trace for trace in plot.traces}


def test_roofs_bend_where_memory_is_no_longer_the_limit(layers: LayersDocument) -> None:
    lines = by_name(draw("roofline", layers))
    product, memory = lines["product: 100 GFLOP/s"], lines["memory: 10.0 GB/s"]
    assert product["x"][0] == memory["x"][1] == pytest.approx(10)  # FLOP a byte
    assert product["y"] == [100e9, 100e9]
    assert memory["y"] == pytest.approx([10e9 * x for x in memory["x"]])
    assert lines["convolution: 50.0 GFLOP/s"]["x"][0] == pytest.approx(5)
    three = (product, memory, lines["convolution: 50.0 GFLOP/s"])
    assert len({line["line"]["dash"] for line in three}) == 3


def test_each_part_that_multiplies_is_a_point_with_its_interval(layers: LayersDocument) -> None:
    traces = draw("roofline", layers).traces
    points = [trace for trace in traces if trace.get("legendgroup") == "torch/cpu"]
    found = {
        (layer, trace["marker"]["symbol"]): (x, y, y - below, y + above)
        for trace in points
        for layer, x, y, above, below in zip(
            *(trace[name] for name in ("text", "x", "y")),
            *(trace["error_y"][name] for name in ("array", "arrayminus")),
            strict=True,
        )
    }
    assert {name: [*map(pytest.approx, values)] for name, values in found.items()} == {
        ("conv1 + relu", "square"): [8, 40e9, 32e9, 50e9],
        ("conv1 + relu", "square-open-dot"): [8, 80e9, 64e9, 100e9],
        ("dense1", "square-open"): [1, 10e9, 8e9, 12.5e9],
    }
    assert [trace["showlegend"] for trace in points] == [True, False, False]


def test_it_says_where_it_is_from_and_names_no_computer(layers: LayersDocument) -> None:
    caption = provenance(layers)
    for part in ("Some CPU @ 2.00GHz, 2 cores", "2 threads", "fp32", "2025-01-01"):
        assert part in caption
    assert layers.host.hostname == "host"
    assert " host" not in caption.replace("heap", "").replace(layers.id, "")


def test_names_stand_above_their_layers_and_everything_is_inside(layers: LayersDocument) -> None:
    plot = draw("roofline", layers)
    assert [(one["text"], round(10 ** one["x"], 3)) for one in plot.layout["annotations"]] == [
        ("dense1", 1), ("conv1", 8),
    ]  # fmt: skip
    for axis, values in (("x", "x"), ("y", "y")):
        low, high = (10**end for end in plot.layout[f"{axis}axis"]["range"])
        marks = [
            v for trace in plot.traces if trace["mode"] == "markers" for v in trace[values] if v is not None
        ]
        assert low < min(marks) <= max(marks) < high


def test_without_a_kept_roof_it_says_how_to_measure_one(layers_document: LayersDocument) -> None:
    with pytest.raises(BadInput, match="polybench limit --threads 2 --model lenet --batch-size 128"):
        draw("roofline", layers_document)


def test_a_limit_shows_what_it_allows_each_layer(document: LimitDocument) -> None:
    lines = by_name(draw("roofs", document))
    assert lines["product: 123 GFLOP/s"]["y"] == [1.234e11, 1.234e11]
    assert lines["memory: 15.0 GB/s"]
    assert "convolution" not in " ".join(lines)  # was not measured
    allowed = lines["allowed to a layer"]
    assert allowed["text"] == ["conv1 + relu", "conv2 + relu", "dense1", "dense2", "dense3"]
    conv2 = pieces(find_model("lenet"))[2]
    flop, moved = conv2.flop("forward", 128), conv2.compulsory_bytes("forward", 128)
    assert flop is not None
    assert moved is not None
    assert allowed["x"][1] == pytest.approx(flop / moved, rel=1e-5)
    assert allowed["y"] == pytest.approx([min(1.234e11, 1.5e10 * x) for x in allowed["x"]], rel=1e-5)
    assert min(allowed["y"]) < 1.234e11 == max(allowed["y"])


def test_several_precisions_have_lines_of_their_own(document: LimitDocument) -> None:
    product: MeasuredRoof = document.roofs[0]
    document.roofs.append(msgspec.structs.replace(product, precision="tf32", value=2e11))
    names = by_name(draw("roofs", document))
    assert {"cpu, fp32: product: 123 GFLOP/s", "cpu, tf32: product: 200 GFLOP/s"} <= set(names)
    document.roofs.clear()
    with pytest.raises(BadInput, match="nothing to draw"):
        draw("roofs", document)


def test_names_never_overlap_and_share_where_layers_are_near() -> None:
    named = [("conv1 + relu", 10.0), *((f"block{n} + relu", 20 + n / 10) for n in range(5)), ("dense", 5.0)]
    assert labels(named, (1.0, 100.0), 600.0) == [
        (pytest.approx(5), "dense"),
        (pytest.approx(10), "conv1"),
        (pytest.approx(20.2, rel=1e-3), "block0 and 4 more"),
    ]
    assert [text for _, text in labels([("b", 2.0), ("a", 2.01)], (1.0, 100.0), 600.0)] == ["b, a"]
