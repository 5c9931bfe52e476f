"""The change between two studies: Welch's interval, its p-value, and q-values of many rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from polybench.stats.log_ratio_change import LogRatioChange, compare_studies, log_ratio_change, q_values

ONE = [[[math.exp(x)]] for x in (0.30, 0.32, 0.29, 0.35)]
TWO = [[[math.exp(x)]] for x in (0.20, 0.24, 0.15)]


def test_the_change_has_welchs_interval() -> None:
    found = log_ratio_change(ONE, TWO)
    assert found is not None
    expected = stats.ttest_ind([0.30, 0.32, 0.29, 0.35], [0.20, 0.24, 0.15], equal_var=False)
    low, high = expected.confidence_interval()
    assert found.ci95 == pytest.approx((math.exp(low), math.exp(high)))
    assert found.p_value == pytest.approx(expected.pvalue)
    ratio = compare_studies(ONE, TWO)
    assert (ratio.value, ratio.ci95) == (found.ratio, found.ci95)


@given(st.floats(-0.5, 0.5), st.floats(1e-6, 0.1), st.floats(1.5, 40))
def test_the_p_value_is_small_if_the_interval_excludes_1(
    log: float, variance: float, degrees_of_freedom: float
) -> None:
    one = LogRatioChange(log, variance, degrees_of_freedom)
    low, high = map(math.log, one.ci95)
    if abs(max(low, -high)) > 1e-6:
        assert (one.p_value < 0.05) == (max(low, -high) > 0)


def test_identical_studies_have_no_change_and_a_single_process_has_no_p_value() -> None:
    same = [[[1.0]], [[1.0]]]
    found = log_ratio_change(same, same)
    assert found == LogRatioChange(0.0, 0.0, 2)
    assert found.p_value == 1.0
    other = log_ratio_change(same, [[[2.0]], [[2.0]]])
    assert other is not None
    assert other.p_value == 0.0
    assert log_ratio_change(ONE[:1], TWO) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_q_values_agree_with_scipy(p_values: list[float]) -> None:
    np.testing.assert_allclose(q_values(p_values), stats.false_discovery_control(p_values), atol=1e-12)


def test_no_rows_have_no_q_values() -> None:
    assert q_values([]) == []
