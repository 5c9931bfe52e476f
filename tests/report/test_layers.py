"""Parts of rounds to rows: sums of blocks, and a residue that makes up the whole."""

from __future__ import annotations

import pytest

from polybench.core.document.layers import EngineLayers, LayersDocument
from polybench.core.document.times import Samples
from polybench.core.pieces import pieces
from polybench.models import MODELS
from polybench.report.layers import Times, layers_document
from polybench.wire.layer_messages import PartTimed
from tests.factories import absent, measured, study

RESNET = MODELS["resnet32"]


def times(seconds: float = 1e-4, collecting: float | None = None) -> Times:
    """Two processes of two rounds; a part takes this in the first, half as much more in the other."""

    def one_round(factor: float) -> list[PartTimed]:
        parts = [
            PartTimed(index, part, factor * seconds, collecting)
            for index, piece in enumerate(pieces(RESNET))
            for part in ("forward", *(gradient.part for gradient in piece.gradients()))
        ]
        return [*parts, PartTimed(None, "loss", factor * seconds, collecting)]

    return [[one_round(1.0)] * 2, [one_round(1.5)] * 2]


def document(found: dict[str, Times], *, inside: bool = False) -> LayersDocument:
    samples = Samples("step", 1, [[[0.03, 0.04, 0.09], [0.04]], [[0.05], [0.05]]])
    compared = study(
        measured("torch/cpu", 0.04, samples=samples),
        measured("torch+compile/cpu", 0.04, samples=samples),
        absent("flux/cpu", "unavailable", "no Julia", "polybench setup flux"),
    )
    return layers_document(compared, RESNET, found, ["torch+compile/cpu"], inside=inside)


def engine(found: Times, *, inside: bool = False) -> EngineLayers:
    return document({"torch/cpu": found}, inside=inside).engines[0]


def test_the_sum_of_the_parts_and_the_residue_are_the_whole_step() -> None:
    one = engine(times())
    assert one.step_seconds == pytest.approx((0.04 + 0.05) / 2)
    assert one.residue_seconds is not None
    total = sum(row.seconds_per_step for row in one.rows)
    assert total + one.residue_seconds == pytest.approx(one.step_seconds)
    assert one.interval95 is not None
    assert one.interval95[0] < one.residue_seconds < one.interval95[1]


def test_a_block_is_the_sum_of_its_layers() -> None:
    whole, inside = engine(times()), engine(times(), inside=True)
    assert len(whole.rows) < len(inside.rows)
    forward = {(row.layer, row.part): row for row in whole.rows}["stage1.block1 + relu", "forward"]
    layers = [row for row in inside.rows if row.layer.startswith("stage1.block1") and row.part == "forward"]
    assert forward.seconds_per_step == pytest.approx(5 * 1.25e-4)
    assert len(layers) == 5
    assert forward.flop == sum(row.flop or 0 for row in layers) == 2 * 128 * 2 * 32 * 32 * 16 * 16 * 9
    assert forward.seconds == [[pytest.approx(5e-4)] * 2, [pytest.approx(7.5e-4)] * 2]


def test_rows_are_in_the_order_of_the_network() -> None:
    rows = engine(times()).rows
    assert [(row.layer, row.part) for row in rows[:3]] == [
        ("conv1", "forward"), ("conv1", "weight gradient"), ("norm1 + relu", "forward"),
    ]  # fmt: skip
    assert (rows[-1].layer, rows[-1].part, rows[-1].flop) == ("step", "loss", None)


def test_the_garbage_collector_has_a_number_of_its_own() -> None:
    assert engine(times()).rows[0].gc_seconds_per_step is None
    block = engine(times(collecting=1e-5)).rows[4]
    assert block.gc_seconds_per_step == pytest.approx(5e-5)


def test_cells_without_layers_have_a_whole_step_or_a_reason() -> None:
    _, compiled, flux = document({"torch/cpu": times()}).engines
    assert compiled.whole_step
    assert compiled.rows == []
    assert (compiled.step_seconds, compiled.residue_seconds) == (pytest.approx(0.045), None)
    assert (flux.status, flux.reason, flux.step_seconds) == ("unavailable", "no Julia", None)


def test_a_process_that_measured_nothing_is_left_out() -> None:
    assert engine([[], *times()[1:]]).rows[0].seconds_per_step == pytest.approx(1.5e-4)
    assert engine([[]]).rows == []
