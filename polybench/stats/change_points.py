"""Change points: the points at which a series of measurements moves to another level.

A Potts fit: a piecewise constant line that minimizes the weighted absolute distances of the points, plus a
penalty for each segment. Distances are absolute, not squared, so that a single outlier makes no change point.
After airspeed velocity (asv, `step_detect.py`), which follows Friedrich et al., "Complexity penalized
M-estimation: fast computation", J. Comput. Graph. Stat. 17, 2008. The penalty is asv's, a form of the
Bayesian information criterion for noise of unknown width. In addition, the width is never estimated below the
level that the points' own intervals imply.
"""

from __future__ import annotations

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
    """Return the segments of the best line through values in order of time; an empty list for no values.

    An error is the half width of a value's 95 % interval, above 0; its inverse is the value's weight.
    """
    n = len(values)
    if not n:
        return []
    weights = [1 / error for error in errors]
    costs, levels = _segment_costs(values, weights)
    max_segments = min(_MAX_SEGMENTS, n // MIN_SEGMENT_POINTS)
    totals, starts = _best_segmentations(costs, max_segments)
    floor = _MEAN_ERROR * n / sum(weights)
    penalized = [
        n * math.log(max(total / sum(weights), floor)) + _PENALTY * math.log(n) * number
        for number, total in enumerate(totals)
    ]
    number = int(np.argmin(penalized)) + 1
    bounds = [n]
    for row in range(number - 1, -1, -1):
        bounds.append(int(starts[row][bounds[-1] - 1]))
    bounds.reverse()
    return [Segment(a, b, float(levels[a, b - 1])) for a, b in itertools.pairwise(bounds)]


def _best_segmentations(costs: np.ndarray, max_segments: int) -> tuple[list[float], list[np.ndarray]]:
    """Return the cost of the best line with 1, 2 ... segments, and where the last segment to each point
    starts."""
    n = len(costs)
    best = costs[0].copy()
    totals, starts = [float(best[-1])], [np.zeros(n)]
    for _ in range(1, max_segments):
        before = np.concatenate(([math.inf], best[:-1]))
        through = before[:, None] + costs
        starts.append(through.argmin(axis=0))
        best = through.min(axis=0)
        totals.append(float(best[-1]))
    return totals, starts


def _segment_costs(values: Sequence[float], weights: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted distances of each segment [start, last point] from its weighted median, and this
    median; the cost of a segment that is too short is infinite."""
    n = len(values)
    costs, levels = np.full((n, n), math.inf), np.zeros((n, n))
    order = np.argsort(values)
    for start in range(n):
        point = order[order >= start]  # the points from `start` in the order of their values
        value, weight = np.asarray(values)[point], np.asarray(weights)[point]
        inside = point <= np.arange(start, n)[:, None]  # [last point, point]
        weight_below = np.cumsum(inside * weight, axis=1)
        moment_below = np.cumsum(inside * (weight * value), axis=1)
        total, moment = weight_below[:, -1], moment_below[:, -1]
        middle = np.arange(n - start), (weight_below >= total[:, None] / 2).argmax(axis=1)
        levels[start, start:] = level = value[middle[1]]
        costs[start, start:] = (2 * weight_below[middle] - total) * level + moment - 2 * moment_below[middle]
        costs[start, start : start + min(MIN_SEGMENT_POINTS, n) - 1] = math.inf
    return np.maximum(0.0, costs), levels
