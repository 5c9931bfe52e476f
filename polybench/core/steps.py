"""Where a series of measurements steps from one level to another.

A Potts fit: a piecewise constant line through the points that costs the sum of their weighted absolute
distances, and so much for each piece. Distances are absolute, not squared, so that one odd point makes no
step. After airspeed velocity (asv, `step_detect.py`), which has it from Friedrich et al., "Complexity
penalized M-estimation: fast computation", J. Comput. Graph. Stat. 17, 2008. The price of a piece is asv's, a
form of the Bayesian information criterion with an unknown width of the noise; that this width is never taken
to be below what the points' own intervals say is ours.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SHORTEST = 2
"""Points of a piece: one alone may be an accident."""

_MOST_PIECES = 20
_PRICE = 4.0
"""Of a piece, times the log of the number of points; asv's."""

_MEAN_ERROR = 0.3
"""The mean distance of a point from its level, in half widths of its 95 % interval, with few processes."""


class Piece(NamedTuple):
    """Points `start` to `stop`, the last one excluded, about `level`, their weighted median."""

    start: int
    stop: int
    level: float


def pieces(values: Sequence[float], errors: Sequence[float]) -> list[Piece]:
    """The pieces of the best line, in order; none for no points.

    Args:
        values: in the order of time.
        errors: of each the half width of its 95 % interval, above 0; its weight is the inverse.
    """
    n = len(values)
    if not n:
        return []
    weights = [1 / error for error in errors]
    costs, levels = _costs(values, weights)
    most = max(1, min(_MOST_PIECES, n // SHORTEST))
    totals, starts = _cheapest(costs, most)
    floor = _MEAN_ERROR * n / sum(weights)
    judged = [
        n * math.log(max(total / sum(weights), floor)) + _PRICE * math.log(n) * number
        for number, total in enumerate(totals, start=1)
    ]
    number = int(np.argmin(judged)) + 1
    bounds = [n]
    for row in range(number - 1, -1, -1):
        bounds.append(int(starts[row][bounds[-1] - 1]))
    bounds.reverse()
    return [Piece(a, b, levels[a][b - 1]) for a, b in itertools.pairwise(bounds)]


def _cheapest(costs: np.ndarray, most: int) -> tuple[list[float], list[np.ndarray]]:
    """For 1, 2 ... pieces: what the cheapest line costs, and where the last piece up to each point starts."""
    n = len(costs)
    best = costs[0].copy()
    totals, starts = [float(best[-1])], [np.zeros(n, dtype=int)]
    for _ in range(1, most):
        before = np.concatenate(([math.inf], best[:-1]))
        through = before[:, None] + costs
        starts.append(through.argmin(axis=0))
        best = through.min(axis=0)
        totals.append(float(best[-1]))
    return totals, starts


def _costs(values: Sequence[float], weights: Sequence[float]) -> tuple[np.ndarray, list[list[float]]]:
    """Of the piece from each point to each later one: weighted distances from its median, and that median."""
    n = len(values)
    costs = np.full((n, n), math.inf)
    levels = [[0.0] * n for _ in range(n)]
    for start in range(n):
        median = _RunningMedian()
        for stop in range(start, n):
            median.add(values[stop], weights[stop])
            levels[start][stop] = median.value
            if stop - start + 1 >= min(SHORTEST, n):
                costs[start, stop] = median.cost
    return costs, levels


class _RunningMedian:
    """The weighted median of values that are added one by one, and their weighted distances from it."""

    def __init__(self) -> None:
        self._low: list[tuple[float, float]] = []  # negated: the largest first
        self._high: list[tuple[float, float]] = []
        self._low_weight = self._high_weight = self._low_sum = self._high_sum = 0.0

    def add(self, value: float, weight: float) -> None:
        if self._low and value <= self.value:
            self._to_low(value, weight)
        else:
            self._to_high(value, weight)
        while self._low_weight < self._high_weight:
            value, weight = heapq.heappop(self._high)
            self._high_weight -= weight
            self._high_sum -= weight * value
            self._to_low(value, weight)
        while (
            len(self._low) > 1 and self._low_weight - self._low[0][1] >= self._high_weight + self._low[0][1]
        ):
            negated, weight = heapq.heappop(self._low)
            self._low_weight -= weight
            self._low_sum += weight * negated
            self._to_high(-negated, weight)

    @property
    def value(self) -> float:
        return -self._low[0][0]

    @property
    def cost(self) -> float:
        below = self.value * self._low_weight - self._low_sum
        above = self._high_sum - self.value * self._high_weight
        return max(0.0, below + above)

    def _to_low(self, value: float, weight: float) -> None:
        heapq.heappush(self._low, (-value, weight))
        self._low_weight += weight
        self._low_sum += weight * value

    def _to_high(self, value: float, weight: float) -> None:
        heapq.heappush(self._high, (value, weight))
        self._high_weight += weight
        self._high_sum += weight * value
