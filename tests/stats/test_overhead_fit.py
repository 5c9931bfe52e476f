"""The linear fit of step times finds planted values and is robust against outliers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.stats.overhead_fit import fit_line, fit_overhead

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
COSTS = st.floats(1e-6, 1.0)


@settings(deadline=None)  # the first call imports SciPy
@given(overhead=COSTS, per_item=COSTS)
def test_an_exact_line_is_found(overhead: float, per_item: float) -> None:
    line = fit_line(SIZES, [overhead + per_item * size for size in SIZES])
    # A part that is a hundred-millionth of every step cannot be distinguished from 0.
    assert line.overhead == pytest.approx(overhead, rel=1e-4, abs=1e-8 * per_item)
    assert line.per_item == pytest.approx(per_item, rel=1e-4, abs=1e-8 * overhead)


def test_planted_values_are_found_within_5_percent_and_within_their_intervals() -> None:
    draw = random.Random(2)

    def process() -> list[float]:
        return [(2e-3 + 10e-6 * size) * (1 + 0.01 * draw.gauss(0, 1)) for size in SIZES]

    found = fit_overhead(SIZES, [process() for _ in range(5)])
    assert found.overhead_seconds == pytest.approx(2e-3, rel=0.05)
    assert found.seconds_per_item == pytest.approx(10e-6, rel=0.05)
    assert found.batch_size_at_50pct_overhead == pytest.approx(200, rel=0.1)
    assert found.ci95.overhead_seconds is not None
    assert found.ci95.overhead_seconds[0] < 2e-3 < found.ci95.overhead_seconds[1]
    assert found.max_relative_residual < 0.03


def test_the_line_solves_hubers_equations() -> None:
    """Relative errors, cut off at 1.345 standard deviations, are orthogonal to both columns of the fit."""
    draw, sizes = np.random.default_rng(3), np.array(SIZES * 4)
    times = (2e-3 + 10e-6 * sizes) * (1 + 0.02 * draw.standard_t(2, len(sizes)))
    line = fit_line(sizes, times)
    errors = (line.overhead + line.per_item * sizes) / times - 1
    cut_off = np.clip(errors / (1.4826 * np.median(np.abs(errors))), -1.345, 1.345)
    assert np.abs(cut_off).max() == 1.345
    for column in (1 / times, sizes / times):
        assert cut_off @ column == pytest.approx(0, abs=1e-6 * np.abs(cut_off) @ column)


def test_one_outlier_hardly_moves_the_line() -> None:
    times = [2e-3 + 10e-6 * size for size in SIZES]
    times[3] *= 3
    line = fit_line(SIZES, times)
    assert line.overhead == pytest.approx(2e-3, rel=0.05)
    assert line.per_item == pytest.approx(10e-6, rel=0.05)


def test_no_coefficient_is_negative() -> None:
    line = fit_line(SIZES, [size**1.2 for size in SIZES])
    assert line.overhead >= 0
    assert line.per_item > 0
    falling = fit_overhead((1, 2), [[2.0, 1.0]])
    assert (falling.seconds_per_item, falling.batch_size_at_50pct_overhead) == (0, None)


def test_one_process_gives_no_interval_and_one_batch_size_no_line() -> None:
    assert fit_overhead((1, 2), [[1.0, 2.0]]).ci95.overhead_seconds is None
    with pytest.raises(ValueError, match=r"^a fit requires two batch sizes and one process$"):
        fit_overhead((1, 1), [[1.0, 1.0]])
