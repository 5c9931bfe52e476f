"""The grid of a sweep: engines by values, and one sentence about the best points."""

from __future__ import annotations

import msgspec

from polybench.render import render
from polybench.render.sweep import sort_points
from polybench.storage.store import Store
from tests.gallery import GALLERY, sweeps

(SWEEP,) = sweeps(Store(GALLERY / "measured"))


def test_a_sweep_along_one_axis_is_a_grid() -> None:
    text = render(SWEEP, width=80)
    assert text.splitlines()[2:5] == [
        "imdb-bilstm on synthetic sequences, batch 32, fp32; AMD EPYC, 2 cores;",
        "  2026-11-23",
        "",
    ]
    assert (
        """
sequences/s by threads    1      2         best vs. first
----------------------  ---  -----  ---------------------
torch/cpu               724  1,208    1.67 (1.28 to 2.17)
tf+unrolled/cpu         611    851  1.39 (0.92 to 2.10) ?
tf/cpu                  521    683  1.31 (0.88 to 1.94) ?
flux/cpu                225    231  1.03 (0.75 to 1.42) ?
"""
        in text
    )
    sentence = "Fastest: torch/cpu with threads 2, 1,208 sequences/s; next: tf+unrolled/cpu with threads 2, 851."
    assert sentence in " ".join(text.split())


def test_points_without_a_number_say_why() -> None:
    points = [
        msgspec.structs.replace(
            point,
            configurations=[
                msgspec.structs.replace(one, items_per_second=None, step_seconds=None, speedup=None, busy=True)
                if one.configuration == "flux/cpu" and point.parameters["threads"] == 2
                else one
                for one in point.configurations
            ],
        )
        for point in SWEEP.points
    ]
    (row,) = [
        line.split()
        for line in render(msgspec.structs.replace(SWEEP, points=points)).splitlines()
        if line.startswith("flux/cpu ")
    ]
    assert row == ["flux/cpu", "225", "(busy)", "1.00"]


def test_rows_without_a_curve_come_after_those_in_the_order_of_the_curves() -> None:
    names = [curve.configuration for curve in SWEEP.curves]
    assert len(names) == 4
    curves = [SWEEP.curves[3], SWEEP.curves[1]]
    rows = sort_points(msgspec.structs.replace(SWEEP, curves=curves))
    in_order = list(dict.fromkeys(result.configuration for _, result in rows))
    assert in_order[:2] == [names[3], names[1]]
    assert set(in_order[2:]) == {names[0], names[2]}
    of_one = [point.parameters for point, result in rows if result.configuration == names[3]]
    assert of_one == [point.parameters for point in SWEEP.points]
