"""Differences taken apart: whatever is in the documents, entries and residue add up to what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.core.document.explanation import Account
from polybench.core.document.layers import Part
from polybench.core.document.resources import GarbageCollection
from polybench.core.document.result import Result
from polybench.core.document.times import Pipeline, Startup
from polybench.report.accounts import APART, BETWEEN, FIXED, by_batch_size, by_layers, by_start, difference
from tests.factories import layers, measured, saved, study

CONV: tuple[str, Part] = ("conv2 + relu", "data gradient")
DENSE: tuple[str, Part] = ("dense1", "weight gradient")
CALL: tuple[str, Part] = ("step", "call")

COLLECTING = GarbageCollection(0.004)
FLUX, TORCH = measured("flux/cpu", 0.050, gc=COLLECTING), measured("torch/cpu", 0.020)

seconds = st.floats(1e-6, 1.0)


def total(account: Account) -> float:
    return sum(entry.seconds for entry in (*account.entries, *account.residue))


def account(base: Result = TORCH, other: Result = FLUX, **of_layers: float) -> Account:
    """Of 30 ms: 21 in one layer, 2 the other way round, 4 the collector's."""
    document = layers(
        study(other, base),
        {"flux/cpu": of_layers.get("flux", 0.051), "torch/cpu": 0.020},
        {"flux/cpu": {CONV: 0.030, DENSE: 0.002, CALL: 0.001}, "torch/cpu": {CONV: 0.009, DENSE: 0.004}},
    )
    found = by_layers(base, other, document)
    assert found is not None
    return found


def test_the_difference_is_that_of_typical_steps_and_has_an_interval_over_processes() -> None:
    found, interval = difference(TORCH, FLUX)
    assert found == pytest.approx(0.030, rel=1e-3)
    assert interval is not None
    assert interval[0] < found < interval[1]
    assert difference(*(measured(cell, 0.02, processes=1) for cell in ("a/cpu", "b/cpu")))[1] is None


def test_the_part_that_makes_most_of_the_difference_is_first() -> None:
    names = [entry.name for entry in account().entries]
    assert names == [
        "conv2 + relu, data gradient", "the garbage collector", "call", "dense1, weight gradient",
    ]  # fmt: skip
    conv = account().entries[0]
    assert (conv.ours, conv.theirs, conv.kind) == (0.030, 0.009, "data gradient")
    assert conv.seconds == pytest.approx(0.021)
    assert conv.interval95 is not None
    assert conv.interval95[0] < conv.seconds < conv.interval95[1]


def test_seen_from_the_faster_cell_everything_is_the_other_way_round() -> None:
    there, back = account(), account(base=FLUX, other=TORCH)
    assert [entry.seconds for entry in back.entries] == [-entry.seconds for entry in there.entries]


def test_the_residue_has_names() -> None:
    between, apart = account().residue
    assert (between.name, apart.name) == (BETWEEN, APART)
    # 31 ms beside the layers, 21 + 4 + 1 - 2 of it in parts; this study had 1 ms less.
    assert between.seconds == pytest.approx(0.031 - 0.024)
    assert between.interval95 is not None
    assert between.interval95[0] < between.seconds < between.interval95[1]
    assert apart.seconds == pytest.approx(-0.001, rel=0.02)


@given(flux=seconds, torch=seconds, step=seconds, part=seconds, other_part=seconds, collecting=seconds)
def test_parts_and_residue_add_up_to_what_was_measured(
    flux: float, torch: float, step: float, part: float, other_part: float, collecting: float
) -> None:
    ours = measured("flux/cpu", flux, gc=GarbageCollection(collecting))
    theirs = measured("torch/cpu", torch)
    document = layers(
        study(ours, theirs),
        {"flux/cpu": step, "torch/cpu": step},
        {"flux/cpu": {CONV: part}, "torch/cpu": {CONV: other_part, DENSE: part}},
    )
    found = by_layers(theirs, ours, document)
    assert found is not None
    assert total(found) == pytest.approx(found.seconds, abs=1e-9)
    assert found.seconds == difference(theirs, ours)[0]


def test_the_parts_of_each_cell_add_up_to_its_own_step() -> None:
    waiting = measured("flux/cpu", 0.050, pipeline=Pipeline(0.010, 0.040), gc=COLLECTING)
    for found, other in ((account(), FLUX), (account(other=waiting, flux=0.041), waiting)):
        everything = [*found.entries, *found.residue]
        assert sum(entry.ours or 0.0 for entry in everything) == pytest.approx(other.typical_seconds)
        assert sum(entry.theirs or 0.0 for entry in everything) == pytest.approx(TORCH.typical_seconds)
        for entry in found.residue:
            assert entry.ours is not None
            assert entry.theirs is not None
            assert entry.seconds == pytest.approx(entry.ours - entry.theirs)


def test_waiting_for_data_is_no_part_of_the_layers() -> None:
    waiting = measured("flux/cpu", 0.050, pipeline=Pipeline(0.010, 0.040), gc=COLLECTING)
    found = account(other=waiting, flux=0.041)
    assert {entry.name: entry.seconds for entry in found.entries}["waiting for data"] == 0.010
    assert total(found) == pytest.approx(found.seconds)
    assert found.residue[1].seconds == pytest.approx(-0.001, rel=0.02)


def test_without_layers_of_both_there_is_no_account() -> None:
    document = layers(study(FLUX, TORCH), {"flux/cpu": 0.05, "torch/cpu": 0.02}, {"flux/cpu": {CONV: 0.03}})
    assert by_layers(TORCH, FLUX, document) is None
    assert by_layers(TORCH, measured("tf/cpu", 0.01), document) is None


def test_fixed_cost_and_images_are_found_apart() -> None:
    def step(images: int, fixed: float, image: float) -> float:
        return fixed + images * image

    def at(images: int) -> tuple[Result, Result]:
        slow, fast = step(images, 3e-3, 50e-6), step(images, 1e-3, 30e-6)
        return measured("flux/cpu", slow), measured("torch/cpu", fast)

    studies = {images: saved(study(*at(images)), batch_size=images) for images in (1, 16, 128)}
    other, base = at(128)
    found = by_batch_size(base, other, studies)
    assert found is not None
    by_name = {entry.name: entry for entry in found.entries}
    assert by_name[FIXED].seconds == pytest.approx(2e-3, rel=0.05)
    assert by_name["the images"].seconds == pytest.approx(128 * 20e-6, rel=0.05)
    assert total(found) == pytest.approx(found.seconds)
    assert by_batch_size(base, other, {128: studies[128]}) is None


def test_the_parts_of_the_start_are_all_of_it() -> None:
    ours = measured("flux/cpu", 0.05, startup=Startup(0.1, 5.0, 1.0, 0.2, 11.0, 0.1))
    found = by_start(TORCH, ours)
    assert found is not None
    assert (found.entries[0].name, found.entries[0].seconds) == ("first step", pytest.approx(10.7))
    assert found.residue == []
    assert total(found) == pytest.approx(found.seconds)
    assert found.explained == pytest.approx(1)
    assert by_start(measured("tf/cpu", 0.02, startup=None), ours) is None
