"""Times of layers as text."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest

from polybench.core.document.layers import EngineLayers, LayerRow, LayersDocument, Part
from polybench.core.document.resources import Roof
from polybench.core.document.times import Samples
from polybench.export.layers import records, render
from polybench.export.layers_rows import ordered
from tests.factories import study


def row(layer: str, part: Part, ms: float, flop: int | None = None, gc_ms: float | None = None) -> LayerRow:
    return LayerRow(
        layer=layer,
        part=part,
        seconds_per_step=ms / 1e3,
        interval95=(0.9 * ms / 1e3, 1.1 * ms / 1e3),
        flop=flop,
        gc_seconds_per_step=None if gc_ms is None else gc_ms / 1e3,
        seconds=[[ms / 1e3]],
    )


def engine(cell: str, step_ms: float, *rows: LayerRow, **fields: object) -> EngineLayers:
    name, device = cell.split("/")
    residue = step_ms / 1e3 - sum(one.seconds_per_step for one in rows)
    found = EngineLayers(
        cell=cell,
        engine=name.partition("+")[0],
        variant=name.partition("+")[2] or None,
        device=device,
        status="ok",
        parity="pass",
        step_seconds=step_ms / 1e3,
        step_interval95=(0.99 * step_ms / 1e3, 1.01 * step_ms / 1e3),
        residue_seconds=residue if rows else None,
        interval95=(residue - 1e-4, residue + 1e-4) if rows else None,
        rows=list(rows),
        samples=Samples("step", 1, [[[step_ms / 1e3]], [[step_ms / 1e3]]]),
    )
    return msgspec.structs.replace(found, **fields)


@pytest.fixture
def document() -> LayersDocument:
    told = study()
    return LayersDocument(
        id=told.id,
        created=told.created,
        polybench=told.polybench,
        argv=["layers"],
        study=told.study,
        settings=told.settings,
        host=told.host,
        warnings=["the machine was busy"],
        engines=[
            engine(
                "flux/cpu",
                100.0,
                row("conv2 + relu", "forward", 20.0, 80_000_000, 0.5),
                row("conv2 + relu", "data gradient", 40.0, 80_000_000, 1.5),
                row("max_pool1", "data gradient", 8.0, gc_ms=0.0),
                row("step", "loss", -0.004, gc_ms=0.0),
                gc_seconds_per_step=3e-3,
            ),
            engine(
                "torch/cpu",
                50.0,
                row("conv2 + relu", "forward", 19.0, 80_000_000),
                row("conv2 + relu", "data gradient", 10.0, 80_000_000),
                row("max_pool1", "data gradient", 9.0),
                row("step", "loss", 0.2),
            ),
            engine("torch+compile/cpu", 40.0, whole_step=True),
            engine("tf/cpu", 1.0, status="unavailable", reason="no TensorFlow", remedy="install it",
                   step_seconds=None, samples=None),
        ],
    )  # fmt: skip


def test_engines_are_side_by_side(document: LayersDocument) -> None:
    text = render(document, "table")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "conv2 + relu data gradient 40.0 40.0 2.00 1.50 10.0 20.0 8.00 30.0 flux/cpu" in lines
    assert "max_pool1 data gradient 8.00 8.0 0.000 9.00 18.0" in lines
    assert "sum of the parts 68.0 68.0 38.2 76.4" in lines
    assert "residue 32.0 32.0 11.8 23.6" in lines
    assert "whole step 100 100.0 50.0 100.0" in lines


def test_what_a_reader_must_know_is_below(document: LayersDocument) -> None:
    text = " ".join(render(document, "table").split())
    assert "torch/cpu: residue 11.8 (11.7 to 11.9) ms, 23.6% of a step" in text
    assert "intervals: 95%, over fresh processes" in text
    assert "lost: longer than torch/cpu, in the cell that loses most" in text
    assert "flux/cpu: the garbage collector takes 3.00 ms of a whole step" in text
    assert "torch+compile/cpu: whole step 40.0 (39.6 to 40.4) ms, and no times of its layers: timed" in text
    assert "tf/cpu: unavailable: no TensorFlow (install it)" in text
    assert "the machine was busy" in text


def test_parts_can_be_sorted_by_what_is_lost(document: LayersDocument) -> None:
    assert ordered(document, "lost") == [
        ("conv2 + relu", "data gradient"),
        ("conv2 + relu", "forward"),
        ("step", "loss"),
        ("max_pool1", "data gradient"),
    ]
    lines = render(document, "table", "lost").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("---"))
    assert lines[first + 1].startswith("conv2 + relu      data gradient")


def test_csv_has_a_line_for_each_part_of_each_cell(document: LayersDocument) -> None:
    lines = list(csv.DictReader(io.StringIO(render(document, "csv", "lost"))))
    assert len(lines) == 8
    assert lines[0]["cell"] == "flux/cpu"
    assert float(lines[0]["lost [s]"]) == pytest.approx(0.03)
    assert float(lines[0]["flop_per_second"]) == pytest.approx(2e9)
    assert list(records(document)[0]) == [title.split(" ")[0] for title in lines[0]]


def test_json_is_the_document(document: LayersDocument) -> None:
    text = render(document, "json")
    assert msgspec.json.decode(text, type=LayersDocument) == document
    assert json.loads(text)["schema"] == "polybench.layers/1"


def test_where_a_roof_is_known_each_product_has_its_share(document: LayersDocument) -> None:
    assert "% of roof" not in render(document, "table")
    document.engines[1].roof = Roof(16e9, 0.4, "2048x2048x2048 in torch")
    text = render(document, "table")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "conv2 + relu data gradient 40.0 40.0 2.00 1.50 10.0 20.0 8.00 50.0 30.0 flux/cpu" in lines
    assert "whole step 100 100.0 50.0 100.0 40.0" in lines
    assert "roof: 16.0 GFLOP/s, the fastest product that was seen here (2048x2048x2048 in torch)" in text
    shares = [record["roof"] for record in records(document) if record["part"] == "data gradient"]
    assert shares == [None, pytest.approx(0.5), None, None]


def test_one_cell_alone_loses_nothing(document: LayersDocument) -> None:
    alone = msgspec.structs.replace(document, engines=document.engines[1:2])
    assert "lost" not in render(alone, "table", "lost")
    assert ordered(alone, "lost") == ordered(alone, "network")


def test_nothing_measured_is_said(document: LayersDocument) -> None:
    nothing = msgspec.structs.replace(document, engines=document.engines[3:])
    for format in ("table", "markdown"):
        assert "tf/cpu: unavailable: no TensorFlow" in render(nothing, format)
    assert "| conv2 + relu" in render(document, "markdown")


def test_of_a_layer_by_itself_nothing_is_said_of_steps(document: LayersDocument) -> None:
    nothing = {"step_seconds": None, "residue_seconds": None, "gc_seconds_per_step": None}
    engines = [msgspec.structs.replace(engine, **nothing) for engine in document.engines]
    text = render(msgspec.structs.replace(document, engines=engines), "table")
    assert "conv2 + relu" in text
    assert not any(word in text for word in ("residue", "whole step", "%  "))
