"""A line through step times: planted values are found, one wild point moves them little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.core.fixed_cost import fit, fixed_cost

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
COSTS = st.floats(1e-6, 1.0)


@settings(deadline=None)  # the first call imports SciPy
@given(fixed=COSTS, per_sample=COSTS)
def test_an_exact_line_is_found(fixed: float, per_sample: float) -> None:
    line = fit(SIZES, [fixed + per_sample * size for size in SIZES])
    # Where one part is a hundred-millionth of every step, nothing can tell it from 0.
    assert line.fixed == pytest.approx(fixed, rel=1e-4, abs=1e-8 * per_sample)
    assert line.per_sample == pytest.approx(per_sample, rel=1e-4, abs=1e-8 * fixed)


def test_planted_values_are_found_within_5_percent_and_within_their_intervals() -> None:
    draw = random.Random(2)

    def process() -> list[float]:
        return [(2e-3 + 10e-6 * size) * (1 + 0.01 * draw.gauss(0, 1)) for size in SIZES]

    found = fixed_cost(SIZES, [process() for _ in range(5)])
    assert found.fixed == pytest.approx(2e-3, rel=0.05)
    assert found.per_sample == pytest.approx(10e-6, rel=0.05)
    assert found.half_batch == pytest.approx(200, rel=0.1)
    assert found.fixed95 is not None
    assert found.fixed95[0] < 2e-3 < found.fixed95[1]
    assert found.worst < 0.03


def test_one_wild_point_moves_the_line_little() -> None:
    times = [2e-3 + 10e-6 * size for size in SIZES]
    times[3] *= 3
    line = fit(SIZES, times)
    assert line.fixed == pytest.approx(2e-3, rel=0.05)
    assert line.per_sample == pytest.approx(10e-6, rel=0.05)


def test_no_part_is_below_zero() -> None:
    line = fit(SIZES, [size**1.2 for size in SIZES])
    assert line.fixed >= 0
    assert line.per_sample > 0


def test_one_process_has_no_interval_and_one_batch_size_no_line() -> None:
    assert fixed_cost((1, 2), [[1.0, 2.0]]).fixed95 is None
    with pytest.raises(ValueError, match="two batch sizes"):
        fixed_cost((1, 1), [[1.0, 1.0]])
