"""polybench's estimator among the candidates of `benchmarks/estimators.py`."""

from __future__ import annotations

import numpy as np
import pytest
from _estimators import PRODUCT, Candidate
from _simulated import SCENARIOS, TRUE_RATIO, simulate
from estimators import Source, score

from polybench.stats.statistics import ratio

SHAPE = (4, 5, 6, 11)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_first_candidate_is_polybenchs_estimator() -> None:
    baseline, other = simulate(SCENARIOS["all"], SHAPE, rng())
    value, (low, high) = PRODUCT.intervals(baseline, other, rng())
    for study in range(SHAPE[0]):
        found = ratio(baseline[study].tolist(), other[study].tolist())
        assert found.speedup == pytest.approx(value[study])
        assert found.ci95 == pytest.approx((low[study], high[study]))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_the_true_ratio(scenario: str) -> None:
    baseline, other = simulate(SCENARIOS[scenario], (3000, 4, 3, 7), rng())
    value, _ = PRODUCT.intervals(baseline, other, rng())
    assert float(np.exp(np.log(value).mean())) == pytest.approx(TRUE_RATIO, rel=0.005)


def margin_of(scenario: str, candidate: Candidate) -> float:
    one, two = simulate(SCENARIOS[scenario], (200, 5, 5, 20), rng())
    return score(candidate, Source("", TRUE_RATIO, [(one, two)]), 0).margin


def test_bursts_that_no_counter_shows_widen_intervals_of_means_more_than_of_medians() -> None:
    assert margin_of("bursts", Candidate("median", "median", "t", True)) < 0.7 * margin_of("bursts", PRODUCT)
