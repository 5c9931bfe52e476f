"""The change of a configuration's speed between two studies, which were not measured side by side.

The unit is the process run, as in `stats.statistics`. A level is the mean over processes of the log of a
typical step, with the variance of that mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from polybench.stats.statistics import Interval, NestedStepTimes, Ratio, process_log_medians, student_quantile


class LogRatioChange(NamedTuple):
    """The log of a speed ratio, with its variance and degrees of freedom."""

    log: float
    variance: float
    degrees_of_freedom: float

    def subtract(self, other: LogRatioChange) -> LogRatioChange:
        """Return the difference of two independent changes, after Welch, since their variances may differ.

        Welch, "The generalization of Student's problem", Biometrika 34, 1947.
        """
        total = self.variance + other.variance
        parts = sum(change.variance**2 / change.degrees_of_freedom for change in (self, other))
        freedom = total**2 / parts if parts else self.degrees_of_freedom + other.degrees_of_freedom
        return LogRatioChange(self.log - other.log, total, freedom)

    @property
    def ratio(self) -> float:
        """The speed ratio; above 1 is faster."""
        return math.exp(self.log)

    @property
    def ci95(self) -> Interval:
        """The 95 % interval of the ratio."""
        half = student_quantile(self.degrees_of_freedom) * math.sqrt(self.variance)
        return math.exp(self.log - half), math.exp(self.log + half)

    @property
    def p_value(self) -> float:
        """The probability of a change this large by chance; below 0.05 if the interval excludes 1."""
        if self.variance == 0:
            return float(self.log == 0)
        from scipy.special import stdtr

        return 2 * float(stdtr(self.degrees_of_freedom, -abs(self.log) / math.sqrt(self.variance)))


def log_ratio_change(baseline: NestedStepTimes, other: NestedStepTimes) -> LogRatioChange | None:
    """Return the change from `baseline` to `other`; None if one of them has fewer than two processes."""
    one, two = _mean_level(process_log_medians(baseline)), _mean_level(process_log_medians(other))
    return one.subtract(two) if one is not None and two is not None else None


def compare_studies(baseline: NestedStepTimes, other: NestedStepTimes) -> Ratio:
    """Return the speed-up of `other` over `baseline`, which were not measured side by side.

    The estimate is exp of the difference of the means over processes, with Welch's interval.

    Raises:
        ValueError: one of them has no step times.
    """
    one, two = process_log_medians(baseline), process_log_medians(other)
    if not one or not two:
        raise ValueError("no step times")
    change = log_ratio_change(baseline, other)
    if change is None:
        return Ratio(math.exp(fmean(one) - fmean(two)), None, "single_process")
    return Ratio(change.ratio, change.ci95, "processes")


def q_values(p_values: Sequence[float]) -> list[float]:
    """Return the q-value of each p-value: the smallest false discovery rate at which it is significant.

    Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57, 1995. It also holds
    for rows that depend on each other positively because they share a machine.
    """
    n = len(p_values)
    rates, smallest = [1.0] * n, 1.0
    descending = sorted(range(n), key=p_values.__getitem__)[::-1]
    for rank, index in zip(range(n, 0, -1), descending, strict=True):
        smallest = min(smallest, p_values[index] * n / rank)
        rates[index] = smallest
    return rates


def _mean_level(processes: Sequence[float]) -> LogRatioChange | None:
    n = len(processes)
    return LogRatioChange(fmean(processes), float(np.var(processes, ddof=1)) / n, n - 1) if n > 1 else None
