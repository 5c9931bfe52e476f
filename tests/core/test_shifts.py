"""A step in two studies: Welch's interval, the chance beyond a tolerance, many rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from polybench.core.shifts import Shift, false_discovery_rates, ratio_of_studies, shift

ONE = [[[math.exp(x)]] for x in (0.30, 0.32, 0.29, 0.35)]
TWO = [[[math.exp(x)]] for x in (0.20, 0.24, 0.15)]


def test_the_shift_is_welchs() -> None:
    found = shift(ONE, TWO)
    assert found is not None
    theirs = stats.ttest_ind([0.30, 0.32, 0.29, 0.35], [0.20, 0.24, 0.15], equal_var=False)
    low, high = theirs.confidence_interval()
    assert found.interval95 == pytest.approx((math.exp(low), math.exp(high)))
    assert found.p == pytest.approx(theirs.pvalue)
    ratio = ratio_of_studies(ONE, TWO)
    assert (ratio.value, ratio.interval95) == (found.ratio, found.interval95)


@given(st.floats(-0.5, 0.5), st.floats(1e-6, 0.1), st.floats(1.5, 40))
def test_the_chance_is_small_where_the_interval_has_no_1(log: float, variance: float, freedom: float) -> None:
    one = Shift(log, variance, freedom)
    low, high = map(math.log, one.interval95)
    if abs(max(low, -high)) > 1e-6:
        assert (one.p < 0.05) == (max(low, -high) > 0)


def test_identical_studies_have_no_shift_and_single_processes_have_none_either() -> None:
    same = [[[1.0]], [[1.0]]]
    found = shift(same, same)
    assert found == Shift(0.0, 0.0, 2)
    assert found.p == 1.0
    other = shift(same, [[[2.0]], [[2.0]]])
    assert other is not None
    assert other.p == 0.0
    assert shift(ONE[:1], TWO) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_rates_are_those_of_scipy(p: list[float]) -> None:
    np.testing.assert_allclose(false_discovery_rates(p), stats.false_discovery_control(p), atol=1e-12)


def test_no_rows_have_no_rates() -> None:
    assert false_discovery_rates([]) == []
