"""Finds the version at which a step became slower or faster, from noisy pairs of measurements, one after the other.

Version 0 is the known end, version n the other end. A pair is the log of a version's step time over that of version
0, measured side by side. The model has one change: pairs before it vary about 0, pairs from it on about the same
unknown change, both with the same unknown spread. The next version is the median of the posterior over the n
possible changes: Horstein's probabilistic bisection, as in Waeber, Frazier and Henderson, "Bisection search with noisy
responses", SIAM J. Control Optim. 51, 2013, https://doi.org/10.1137/120861898. The search stops when one change has
a probability of 99 %. In simulated searches, also with Student's tails and a spread of half the change, it names a
wrong one in at most 2 % (tests/stats/test_bisection.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CERTAINTY = 0.99
"""Posterior probability at which the search names a version."""
_ENDS_P = 0.01
"""Significance level of the difference between both ends, without which there is nothing to search for."""
_MIN_END_PAIRS, _MAX_END_PAIRS = 3, 6
_PRIOR_SHAPE, _PRIOR_SPREAD = 1.0, 0.02
"""Inverse gamma prior of the variance of pairs: the weight of two pairs, with a spread of 2 %."""

Pairs = Mapping[int, Sequence[float]]
"""Log ratios of each measured version by its number."""


class Change(NamedTuple):
    """The most probable change: the version it is at, its probability, and the factor of the step time there."""

    version: int
    probability: float
    ratio: float
    ci95: tuple[float, float]


def max_pairs(n: int) -> int:
    """Return the maximum number of pairs for n possible changes."""
    return int(1.5 * math.log2(n) + _MAX_END_PAIRS)


def posterior(pairs: Pairs, n: int) -> NDArray[np.float64]:
    """Return the probability of a change at each version 1, ..., n; `pairs` contain version n.

    It integrates over the change, with a flat prior, and over the variance.
    """
    versions = np.array([version for version, logs in pairs.items() for _ in logs])
    logs = np.array([log for values in pairs.values() for log in values])
    changed = versions >= np.arange(1, n + 1)[:, None]
    counts = changed.sum(1)
    means = np.where(changed, logs, 0).sum(1) / counts
    squares = np.square(logs - np.where(changed, means[:, None], 0)).sum(1)
    shape = _PRIOR_SHAPE + (logs.size - 1) / 2
    density = -np.log(counts) / 2 - shape * np.log(_PRIOR_SHAPE * _PRIOR_SPREAD**2 + squares / 2)
    weights = np.exp(density - density.max())
    return np.asarray(weights / weights.sum())


def next_version(pairs: Pairs, n: int, limit: int | None = None) -> int | None:
    """Return the version to measure next; None if the search has ended, see `find_change`.

    `limit` is the maximum number of pairs, by default `max_pairs(n)`.
    """
    taken = sum(map(len, pairs.values()))
    if len(pairs.get(n, ())) < _MIN_END_PAIRS:
        return n
    if not ends_differ(pairs, n):
        return n if taken < _MAX_END_PAIRS else None
    if taken >= (limit or max_pairs(n)) or find_change(pairs, n) is not None:
        return None
    probabilities = posterior(pairs, n)
    likely = 1 + int(probabilities.argmax())
    if probabilities[likely - 1] >= CERTAINTY:  # a version beside the change has no pair yet
        return next(version for version in (likely - 1, likely) if version > 0 and version not in pairs)
    return 1 + int(np.abs(probabilities.cumsum()[:-1] - 0.5).argmin())


def ends_differ(pairs: Pairs, n: int) -> bool:
    """Return True if the pairs of the last version show a change."""
    from scipy.special import stdtr

    logs = pairs[n]
    error, degrees_of_freedom = _spread({n: logs})
    p_value = 2 * stdtr(degrees_of_freedom, -abs(fmean(logs)) * math.sqrt(len(logs)) / error)
    return bool(p_value < _ENDS_P)


def find_change(pairs: Pairs, n: int) -> Change | None:
    """Return the change if it is certain and the versions on both of its sides were measured, else None.

    Its ratio is that of the version over the one before it, with an interval over the pairs of both.
    """
    from scipy.special import stdtrit

    if not pairs.get(n) or not ends_differ(pairs, n):
        return None
    probabilities = posterior(pairs, n)
    version = 1 + int(probabilities.argmax())
    before, after = pairs.get(version - 1, ()), pairs.get(version, ())
    if probabilities[version - 1] < CERTAINTY or not after or (version > 1 and not before):
        return None
    spread, degrees_of_freedom = _spread(pairs)
    error = spread * math.sqrt(1 / len(after) + (1 / len(before) if before else 0.0))
    half = float(stdtrit(degrees_of_freedom, 0.975)) * error
    log = fmean(after) - (fmean(before) if before else 0.0)
    return Change(
        version, float(probabilities[version - 1]), math.exp(log), (math.exp(log - half), math.exp(log + half))
    )


def credible_versions(pairs: Pairs, n: int) -> tuple[int, int]:
    """Return the first and the last version of the central range that contains the change with 95 %."""
    cumulative = posterior(pairs, n).cumsum()
    return 1 + int(np.searchsorted(cumulative, 0.025)), 1 + min(n - 1, int(np.searchsorted(cumulative, 0.975)))


def _spread(pairs: Pairs) -> tuple[float, float]:
    """Return the spread of pairs of one version and its degrees of freedom, the prior's included."""
    squares = sum((log - fmean(logs)) ** 2 for logs in pairs.values() for log in logs)
    degrees_of_freedom = 2 * _PRIOR_SHAPE + sum(len(logs) - 1 for logs in pairs.values())
    variance = (2 * _PRIOR_SHAPE * _PRIOR_SPREAD**2 + squares) / degrees_of_freedom
    return math.sqrt(variance), degrees_of_freedom
