"""Step time over batch sizes -> what every step costs, and what every sample adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from polybench.core.statistics import Interval, student_interval

_ROUNDS = 50
_HUBER = 1.345
"""Residuals beyond this many standard deviations count less: 95 % as efficient as least squares on normal
errors (Huber, "Robust Statistics", 1981)."""


class Line(NamedTuple):
    """seconds = fixed + per_sample x batch size."""

    fixed: float
    per_sample: float


class FixedCost(NamedTuple):
    """The line, the mean over processes, each with its interval over them; None with one process.

    `half_batch` is the batch size at which half of a step is fixed cost; None where a sample costs nothing.
    `worst` is by how much, at most, a point's level differs from the line, as a fraction of it.
    """

    fixed: float
    fixed95: Interval | None
    per_sample: float
    per_sample95: Interval | None
    half_batch: float | None
    worst: float


def fixed_cost(batch_sizes: Sequence[int], seconds: Sequence[Sequence[float]]) -> FixedCost:
    """Fit a line to each process by itself, and see how the lines agree.

    Args:
        batch_sizes: at least two different ones.
        seconds: of a step, as [process][batch size]; a process is measured apart from the others.

    Raises:
        ValueError: fewer than two batch sizes, or no process.
    """
    if len(set(batch_sizes)) < 2 or not seconds:
        raise ValueError("a line needs two batch sizes, and one process")
    lines = [fit(batch_sizes, one) for one in seconds]
    fixed, per_sample = (fmean(values) for values in zip(*lines, strict=True))
    levels = [math.exp(fmean(map(math.log, point))) for point in zip(*seconds, strict=True)]
    return FixedCost(
        fixed=fixed,
        fixed95=student_interval([line.fixed for line in lines]),
        per_sample=per_sample,
        per_sample95=student_interval([line.per_sample for line in lines]),
        half_batch=fixed / per_sample if per_sample > 0 else None,
        worst=max(
            abs(level / (fixed + per_sample * size) - 1)
            for size, level in zip(batch_sizes, levels, strict=True)
        ),
    )


def fit(batch_sizes: Sequence[int], seconds: Sequence[float]) -> Line:
    """A robust line: errors are in proportion to the time, and one wild point moves it little.

    Least squares of relative errors, reweighted after Huber; neither part is below 0.
    """
    size, time = np.asarray(batch_sizes, float), np.asarray(seconds, float)
    weight = np.ones_like(time)
    line = _least_squares(size, time, weight)
    for _ in range(_ROUNDS):
        error = (line.fixed + line.per_sample * size) / time - 1
        spread = 1.4826 * float(np.median(np.abs(error)))  # the standard deviation, were they normal
        if spread < 1e-12:
            break
        weight = np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(error), 1e-300))
        line = _least_squares(size, time, weight)
    return line


def _least_squares(size: np.ndarray, time: np.ndarray, weight: np.ndarray) -> Line:
    from scipy.optimize import nnls

    root = np.sqrt(weight)
    matrix = np.stack([root / time, root * size / time], axis=1)
    (fixed, per_sample), _ = nnls(matrix, root)
    return Line(float(fixed), float(per_sample))
