"""By how much a step differs between two studies, which have nothing in common but the cell.

The process is the unit, as in `core.statistics`: a level is the mean over processes of the log of a typical
step, with the variance of that mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from polybench.core.statistics import Interval, NestedSamples, Ratio, process_levels, student_quantile


class Shift(NamedTuple):
    """The log of how much faster one is than the other, with its variance and degrees of freedom."""

    log: float
    variance: float
    freedom: float

    def less(self, other: Shift) -> Shift:
        """The difference of two that are independent: Welch's, since their spreads may differ.

        Welch, "The generalization of Student's problem", Biometrika 34, 1947.
        """
        total = self.variance + other.variance
        parts = sum(one.variance**2 / one.freedom for one in (self, other))
        freedom = total**2 / parts if parts else self.freedom + other.freedom
        return Shift(self.log - other.log, total, freedom)

    @property
    def ratio(self) -> float:
        """Above 1 is faster."""
        return math.exp(self.log)

    @property
    def interval95(self) -> Interval:
        """Of the ratio, at the 95 % level."""
        half = student_quantile(self.freedom) * math.sqrt(self.variance)
        return math.exp(self.log - half), math.exp(self.log + half)

    @property
    def p(self) -> float:
        """The chance of one as large as this where there is none; below 0.05 where the interval has no 1."""
        if self.variance == 0:
            return float(self.log == 0)
        from scipy.special import stdtr

        return 2 * float(stdtr(self.freedom, -abs(self.log) / math.sqrt(self.variance)))


def shift(baseline: NestedSamples, other: NestedSamples) -> Shift | None:
    """Of `other` against `baseline`; None where one of them has a single process, or none."""
    one, two = _level(process_levels(baseline)), _level(process_levels(other))
    return one.less(two) if one is not None and two is not None else None


def ratio_of_studies(baseline: NestedSamples, other: NestedSamples) -> Ratio:
    """Speed-up of `other` against `baseline`, where the two were not measured side by side.

    exp of the difference of the means over processes, with Welch's interval.

    Raises:
        ValueError: one of them has no sample.
    """
    one, two = process_levels(baseline), process_levels(other)
    if not one or not two:
        raise ValueError("no samples")
    found = shift(baseline, other)
    if found is None:
        return Ratio(math.exp(fmean(one) - fmean(two)), None, "within one run")
    return Ratio(found.ratio, found.interval95, "processes")


def false_discovery_rates(p: Sequence[float]) -> list[float]:
    """For each p value the least share of false ones among discoveries at which it would be one.

    Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57, 1995; rows that
    share a machine depend on each other positively, for which it holds, too.
    """
    rates, least = [1.0] * len(p), 1.0
    for rank, index in zip(range(len(p), 0, -1), sorted(range(len(p)), key=p.__getitem__)[::-1], strict=True):
        least = min(least, p[index] * len(p) / rank)
        rates[index] = least
    return rates


def _level(processes: Sequence[float]) -> Shift | None:
    n = len(processes)
    return Shift(fmean(processes), float(np.var(processes, ddof=1)) / n, n - 1) if n > 1 else None
