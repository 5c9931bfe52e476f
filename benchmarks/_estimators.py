"""Candidate estimators for the ratio of two configurations and its interval.

A candidate has a level of a round, a reduction over rounds, and an interval over processes. Step times are seconds as
(study, process, round, step), of a baseline and of another configuration in the same processes and rounds. All
functions handle all studies at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

Array = NDArray[np.float64]
Interval = tuple[Array, Array]
"""Lower and upper end, one entry per study."""

DRAWS = 1000
_TAIL = 0.025
_TRIM = 0.2
"""Share of a round's steps to trim at each end."""
_STUDIES_AT_ONCE = 100
"""Studies per batch, which limits the memory of a hierarchical bootstrap."""


def _quantile(share: float) -> Callable[[Array], Array]:
    return lambda samples: np.asarray(np.quantile(samples, share, axis=-1))


def _trimmed_mean(samples: Array) -> Array:
    cut = int(_TRIM * samples.shape[-1])
    middle: Array = np.sort(samples, axis=-1)[..., cut : samples.shape[-1] - cut]
    return np.asarray(middle.mean(axis=-1))


LEVELS: dict[str, Callable[[Array], Array]] = {
    "median": lambda samples: np.asarray(np.median(samples, axis=-1)),
    "mean": lambda samples: np.asarray(samples.mean(axis=-1)),
    "trimmed mean": _trimmed_mean,
    "quantile 25 %": _quantile(0.25),
    "quantile 10 %": _quantile(0.10),
    "quantile 5 %": _quantile(0.05),
    "minimum": lambda samples: np.asarray(samples.min(axis=-1)),
}
"""Reduces (..., step) to (...): the level of a round."""

OVER_ROUNDS: dict[str, Callable[[Array], Array]] = {
    "median": lambda rounds: np.asarray(np.median(rounds, axis=-1)),
    "mean": lambda rounds: np.asarray(rounds.mean(axis=-1)),
}
"""Reduces (..., round) to (...): the level of a process."""


def student(pairs: Array, *_: object) -> Interval:
    """Student's t over processes, of the differences of two configurations round by round."""
    processes = pairs.shape[1]
    error = pairs.std(axis=1, ddof=1) / np.sqrt(processes)
    half = stdtrit(processes - 1, 1 - _TAIL) * error
    return pairs.mean(axis=1) - half, pairs.mean(axis=1) + half


def percentile_bootstrap(pairs: Array, rng: np.random.Generator, *_: object) -> Interval:
    """Quantiles of the mean over processes drawn with replacement."""
    low, high = np.quantile(_redrawn(pairs, rng), (_TAIL, 1 - _TAIL), axis=1)
    return low, high


def bca_bootstrap(pairs: Array, rng: np.random.Generator, *_: object) -> Interval:
    """Bootstrap quantiles corrected for bias and skewness (Efron, 1987)."""
    means = np.sort(_redrawn(pairs, rng), axis=1)
    centre = pairs.mean(axis=1, keepdims=True)
    share = ((means < centre).mean(axis=1) + (means <= centre).mean(axis=1)) / 2
    bias = ndtri(np.clip(share, 1 / DRAWS, 1 - 1 / DRAWS))
    squares, cubes = ((pairs - centre) ** 2).sum(axis=1), ((pairs - centre) ** 3).sum(axis=1)
    acceleration = cubes / (6 * np.where(squares, squares, 1) ** 1.5)
    ends = []
    for quantile in (_TAIL, 1 - _TAIL):
        shifted = bias + ndtri(quantile)
        corrected = ndtr(bias + shifted / (1 - acceleration * shifted))
        index = np.clip((corrected * DRAWS).astype(int), 0, DRAWS - 1)
        ends.append(np.take_along_axis(means, index[:, None], axis=1)[:, 0])
    return ends[0], ends[1]


def hierarchical_bootstrap(
    _: Array, rng: np.random.Generator, rounds: Array, over_rounds: Callable[[Array], Array]
) -> Interval:
    """Quantiles with processes drawn with replacement, then rounds of each."""
    _studies, processes, number = rounds.shape
    process = rng.integers(processes, size=(DRAWS, processes, 1))
    one_round = rng.integers(number, size=(DRAWS, processes, number))
    means = [
        over_rounds(some[:, process, one_round]).mean(axis=-1)
        for some in np.array_split(rounds, -(-len(rounds) // _STUDIES_AT_ONCE))
    ]
    low, high = np.quantile(np.concatenate(means), (_TAIL, 1 - _TAIL), axis=1)
    return low, high


def _redrawn(pairs: Array, rng: np.random.Generator) -> Array:
    """Means as (study, draw)."""
    picks = rng.integers(pairs.shape[1], size=(DRAWS, pairs.shape[1]))
    return np.asarray(pairs[:, picks].mean(axis=-1))


INTERVALS: dict[str, Callable[..., Interval]] = {
    "t": student,
    "bootstrap": percentile_bootstrap,
    "BCa": bca_bootstrap,
    "hierarchical": hierarchical_bootstrap,
}
UNPAIRED = "unpaired t"
OF_MEANS = "t of the ratio of means"


class Candidate(NamedTuple):
    """An estimator from step times to a ratio; its names are keys of the tables above."""

    level: str
    over_rounds: str
    interval: str
    logarithm: bool

    def intervals(self, baseline: Array, other: Array, rng: np.random.Generator) -> tuple[Array, Interval]:
        """Return the speed-up of `other` in each study, with its 95 % interval."""
        one, two = LEVELS[self.level](baseline), LEVELS[self.level](other)
        over = OVER_ROUNDS[self.over_rounds]
        if self.interval == UNPAIRED:
            return _unpaired(over(np.log(one)), over(np.log(two)))
        if self.interval == OF_MEANS:
            return _ratio_of_means(over(one), over(two))
        rounds = np.log(one / two) if self.logarithm else one / two
        pairs = over(rounds)
        low, high = INTERVALS[self.interval](pairs, rng, rounds, over)
        value = pairs.mean(axis=1)
        if self.logarithm:
            return np.exp(value), (np.exp(low), np.exp(high))
        return value, (low, high)


def _unpaired(one: Array, two: Array) -> tuple[Array, Interval]:
    """Welch's t on logarithms: treats the processes of both configurations as unrelated."""
    processes = one.shape[1]
    variances = one.var(axis=1, ddof=1), two.var(axis=1, ddof=1)
    total = variances[0] + variances[1]
    freedom = (processes - 1) * total**2 / (variances[0] ** 2 + variances[1] ** 2)
    half = stdtrit(freedom, 1 - _TAIL) * np.sqrt(total / processes)
    value = (one - two).mean(axis=1)
    return np.exp(value), (np.exp(value - half), np.exp(value + half))


def _ratio_of_means(one: Array, two: Array) -> tuple[Array, Interval]:
    """Student's t over pairs of processes, of their deviations relative to both means."""
    means = one.mean(axis=1, keepdims=True), two.mean(axis=1, keepdims=True)
    value = (means[0] / means[1])[:, 0]
    low, high = student(one / means[0] - two / means[1])
    return value, (value * np.exp(low), value * np.exp(high))


PRODUCT = Candidate("mean", "mean", OF_MEANS, True)
"""The estimator of polybench.stats.statistics.ratio."""


def candidates(every: bool) -> Iterator[Candidate]:
    """Candidates that differ from the product in one element, and all levels with both reductions over rounds."""
    logarithms = [(interval, True) for interval in (*INTERVALS, UNPAIRED, OF_MEANS)] + [
        (interval, False) for interval in INTERVALS
    ]
    for over, level in itertools.product(OVER_ROUNDS, LEVELS):
        for interval, logarithm in logarithms:
            usual = (interval, logarithm) == (PRODUCT.interval, PRODUCT.logarithm)
            if every or usual or (level, over) == (PRODUCT.level, PRODUCT.over_rounds):
                yield Candidate(level, over, interval, logarithm)
