"""Change points: the points at which a series of measurements moves to another level.

A Potts fit: a piecewise constant line that minimizes the weighted absolute distances of the points, plus a
penalty for each segment. Distances are absolute, not squared, so that a single outlier makes no change point.
After airspeed velocity (asv, `step_detect.py`), which follows Friedrich et al., "Complexity penalized
M-estimation: fast computation", J. Comput. Graph. Stat. 17, 2008. The penalty is asv's, a form of the
Bayesian information criterion for noise of unknown width. In addition, the width is never estimated below the
level that the points' own intervals imply.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MIN_SEGMENT_POINTS = 2
"""Minimum points of a segment: a single point may be an outlier."""

_MAX_SEGMENTS = 20
_PENALTY = 4.0
"""Penalty of a segment, times the log of the number of points; from asv."""

_MEAN_ERROR = 0.3
"""Mean distance of a point from its level, in half widths of its 95 % interval, for few processes."""


class Segment(NamedTuple):
    """Points `start` to `stop` (exclusive) around `level`, their weighted median."""

    start: int
    stop: int
    level: float


def segment(values: Sequence[float], errors: Sequence[float]) -> list[Segment]:
    """Return the segments of the best line, in order; an empty list for no points.

    Args:
        values: in order of time.
        errors: the half width of the 95 % interval of each value, above 0; its weight is the inverse.
    """
    n = len(values)
    if not n:
        return []
    weights = [1 / error for error in errors]
    costs, levels = _segment_costs(values, weights)
    max_segments = max(1, min(_MAX_SEGMENTS, n // MIN_SEGMENT_POINTS))
    totals, starts = _best_segmentations(costs, max_segments)
    floor = _MEAN_ERROR * n / sum(weights)
    penalized = [
        n * math.log(max(total / sum(weights), floor)) + _PENALTY * math.log(n) * number
        for number, total in enumerate(totals, start=1)
    ]
    number = int(np.argmin(penalized)) + 1
    bounds = [n]
    for row in range(number - 1, -1, -1):
        bounds.append(int(starts[row][bounds[-1] - 1]))
    bounds.reverse()
    return [Segment(a, b, levels[a][b - 1]) for a, b in itertools.pairwise(bounds)]


def _best_segmentations(costs: np.ndarray, max_segments: int) -> tuple[list[float], list[np.ndarray]]:
    """Return the cost of the best line with 1, 2 ... segments, and where the last segment to each point
    starts."""
    n = len(costs)
    best = costs[0].copy()
    totals, starts = [float(best[-1])], [np.zeros(n, dtype=int)]
    for _ in range(1, max_segments):
        before = np.concatenate(([math.inf], best[:-1]))
        through = before[:, None] + costs
        starts.append(through.argmin(axis=0))
        best = through.min(axis=0)
        totals.append(float(best[-1]))
    return totals, starts


def _segment_costs(values: Sequence[float], weights: Sequence[float]) -> tuple[np.ndarray, list[list[float]]]:
    """Return, for each start and end, the weighted distances from the segment's median, and that median."""
    n = len(values)
    costs = np.full((n, n), math.inf)
    levels = [[0.0] * n for _ in range(n)]
    for start in range(n):
        median = _RunningMedian()
        for stop in range(start, n):
            median.add(values[stop], weights[stop])
            levels[start][stop] = median.value
            if stop - start + 1 >= min(MIN_SEGMENT_POINTS, n):
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
        while len(self._low) > 1 and self._low_weight - self._low[0][1] >= self._high_weight + self._low[0][1]:
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
