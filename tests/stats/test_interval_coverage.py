"""Coverage of intervals: the fraction of simulated studies whose interval contains the truth.

Process effects have a standard deviation of 3 %, round effects of 1 %, both log-normal and independent for
each configuration. Steps have a right tail, and one in twenty takes 50 % longer. A hierarchical bootstrap is
compared with the production code; it is defined here because it covers less.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from polybench.stats.statistics import ratio, summarize_step_times

StepTimes = NDArray[np.float64]
"""Seconds, as (process, round, step)."""

ROUNDS, STEPS = 5, 21
TRUE_RATIO = 1.25
BASELINE_SECONDS = 0.0165


def simulated_configuration(rng: np.random.Generator, processes: int, seconds: float) -> StepTimes:
    """Return step times of a configuration whose typical process has a median step of `seconds`."""
    process_effects = rng.normal(0, 0.03, (processes, 1, 1))
    round_effects = rng.normal(0, 0.01, (processes, ROUNDS, 1))
    shape = (processes, ROUNDS, STEPS)
    right_tail = rng.exponential(0.02, shape) - 0.02 * math.log(2)  # median 0
    outliers = np.where(rng.random(shape) < 0.05, math.log(1.5), 0)
    return seconds * np.exp(process_effects + round_effects + right_tail + outliers)


def bootstrap_interval(
    baseline: StepTimes, other: StepTimes, rng: np.random.Generator, draws: int
) -> tuple[float, float]:
    """Return the hierarchical percentile bootstrap of the ratio: processes, then rounds, then steps.

    Steps are resampled first: each round has a set of medians of resampled steps, and each draw takes one of
    them.
    """
    processes, rounds, steps = baseline.shape
    resamples = 50
    picks = rng.integers(steps, size=(processes, rounds, resamples, steps))
    logs = []
    for configuration in (baseline, other):
        drawn = np.take_along_axis(configuration[:, :, None, :], picks, axis=3)
        # An odd number of steps: the median is the middle one, and partition finds it faster than np.median.
        logs.append(np.log(np.partition(drawn, steps // 2, axis=3)[..., steps // 2]))
    process = rng.integers(processes, size=(draws, processes, 1))
    one_round = rng.integers(rounds, size=(draws, processes, rounds))
    one, two = (log[process, one_round, rng.integers(resamples, size=one_round.shape)] for log in logs)
    means = (one - two).mean(axis=(1, 2))
    low, high = np.exp(np.percentile(means, (2.5, 97.5)))
    return float(low), float(high)


processes_of_a_study = pytest.mark.parametrize(
    "processes", [3, pytest.param(5, marks=pytest.mark.wide), pytest.param(10, marks=pytest.mark.wide)]
)
"""The fewest have the widest intervals, and `make proofs` has the others as well."""


@processes_of_a_study
def test_the_t_interval_covers_better_than_the_bootstrap(processes: int) -> None:
    rng = np.random.default_rng(20_250_101 + processes)
    studies, bootstrapped = 2000, 400
    t_hits = bootstrap_hits = 0
    for study in range(studies):
        baseline = simulated_configuration(rng, processes, BASELINE_SECONDS)
        other = simulated_configuration(rng, processes, BASELINE_SECONDS / TRUE_RATIO)
        interval = ratio(baseline.tolist(), other.tolist()).ci95
        assert interval is not None
        t_hits += interval[0] <= TRUE_RATIO <= interval[1]
        if study < bootstrapped:
            low, high = bootstrap_interval(baseline, other, rng, draws=1000)
            bootstrap_hits += low <= TRUE_RATIO <= high
    t, bootstrap = t_hits / studies, bootstrap_hits / bootstrapped
    print(f"\n{processes} processes: t interval covers {t:.3f}, hierarchical bootstrap {bootstrap:.3f}")
    assert 0.93 <= t <= 0.97
    assert abs(t - 0.95) <= abs(bootstrap - 0.95)


@processes_of_a_study
def test_the_interval_of_the_mean_step_covers(processes: int) -> None:
    rng = np.random.default_rng(processes)
    truth = float(simulated_configuration(rng, 100_000, BASELINE_SECONDS).mean())
    studies = 1500
    hits = 0
    for _ in range(studies):
        configuration = simulated_configuration(rng, processes, BASELINE_SECONDS)
        interval = summarize_step_times(configuration.tolist(), "step").ci95
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    assert 0.92 <= hits / studies <= 0.97
