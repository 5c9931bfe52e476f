"""A linear fit of step time over batch size: the overhead of a step, and the cost of an item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from polybench.schema.measurements import OverheadIntervals
from polybench.stats.statistics import student_interval

_MAX_ITERATIONS = 50
_HUBER_THRESHOLD = 1.345
"""Residuals beyond this many standard deviations get less weight. The fit is 95 % as efficient as least
squares for normal errors (Huber, "Robust Statistics", 1981)."""


class LinearFit(NamedTuple):
    """seconds = overhead + per_item x batch size."""

    overhead: float
    per_item: float


class OverheadFit(NamedTuple):
    """The mean of the lines over processes, with its intervals; the fields are those of ConfigurationOverhead."""

    overhead_seconds: float
    seconds_per_item: float
    ci95: OverheadIntervals
    batch_size_at_50pct_overhead: float | None
    max_relative_residual: float


def fit_overhead(batch_sizes: Sequence[int], seconds: Sequence[Sequence[float]]) -> OverheadFit:
    """Fit a line to the seconds, [process][batch size], of each process; return the mean line with intervals.

    Raises ValueError for fewer than two batch sizes, or no process.
    """
    if len(set(batch_sizes)) < 2 or not seconds:
        raise ValueError("a fit requires two batch sizes and one process")
    lines = [fit_line(batch_sizes, process) for process in seconds]
    coefficients = list(zip(*lines, strict=True))
    overhead, per_item = map(fmean, coefficients)
    levels = [math.exp(fmean(map(math.log, point))) for point in zip(*seconds, strict=True)]
    return OverheadFit(
        overhead,
        per_item,
        OverheadIntervals(*map(student_interval, coefficients)),
        overhead / per_item if per_item > 0 else None,
        max(abs(level / (overhead + per_item * size) - 1) for size, level in zip(batch_sizes, levels, strict=True)),
    )


def fit_line(batch_sizes: Sequence[int], seconds: Sequence[float]) -> LinearFit:
    """Return a robust line through step times; errors are proportional to the time.

    Iteratively reweighted least squares of relative errors, after Huber; neither coefficient is negative.
    """
    size, time = np.asarray(batch_sizes), np.asarray(seconds)
    weight = np.ones_like(time)
    line = _least_squares(size, time, weight)
    for _ in range(_MAX_ITERATIONS):
        error = (line.overhead + line.per_item * size) / time - 1
        spread = 1.4826 * float(np.median(np.abs(error)))  # the standard deviation, if errors are normal
        if spread < 1e-12:
            break
        weight = np.minimum(1.0, _HUBER_THRESHOLD * spread / np.maximum(np.abs(error), 1e-300))
        line = _least_squares(size, time, weight)
    return line


def _least_squares(size: np.ndarray, time: np.ndarray, weight: np.ndarray) -> LinearFit:
    from scipy.optimize import nnls

    root = np.sqrt(weight)
    matrix = np.stack([root / time, root * size / time], axis=1)
    (overhead, per_item), _ = nnls(matrix, root)
    return LinearFit(float(overhead), float(per_item))
