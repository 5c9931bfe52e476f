"""Ratios of studies that were measured at different times, and the spread between such studies.

The log step time of configuration i in study k is modelled as `level_i + machine_k + own_ik + error_ik`: a study shifts
all configurations of a machine by a common amount and each one by its own, and the error is that of the mean over its
processes. The interval of one study contains the error only. `estimate_spread` estimates the variance of the shifts
from repetitions: studies of the same configuration with the same settings and versions on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from polybench.schema.analyses import ENOUGH_REPETITIONS, StudySpread
from polybench.schema.result import Interval
from polybench.stats.statistics import NestedStepTimes, Ratio, process_log_means, student_quantile

ASSUMED_STD = 0.05
"""Standard deviation of a study's shift that is assumed until there are enough repetitions. Virtual machines shift by
2 to 5 %, and a smaller assumption gives false verdicts on those."""

_MEDIAN_OF_NORMAL = 0.6745
"""Median distance of a normally distributed value from its mean, in standard deviations."""


class LogRatioChange(NamedTuple):
    """The log of a speed ratio, with its variance and degrees of freedom."""

    log: float
    variance: float
    degrees_of_freedom: float

    def subtract(self, other: LogRatioChange) -> LogRatioChange:
        """Return the difference of two independent changes."""
        return combine((1.0, self), (-1.0, other))

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


def combine(*terms: tuple[float, LogRatioChange]) -> LogRatioChange:
    """Return the weighted sum of independent changes, whose variances may differ.

    Its degrees of freedom are those of Welch, "The generalization of Student's problem", Biometrika 34, 1947.
    """
    variances = [weight**2 * change.variance for weight, change in terms]
    freedoms = [change.degrees_of_freedom for _, change in terms]
    parts = sum(variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True) if variance)
    total = sum(variances)
    freedom = total**2 / parts if parts else sum(freedoms)
    return LogRatioChange(sum(weight * change.log for weight, change in terms), total, freedom)


class Repetition(NamedTuple):
    """A configuration in one study: the log of its step time, with the variance of the mean over its processes.

    Repetitions of one `group` measured the same.
    """

    study: str
    group: str
    log: float
    variance: float


def estimate_spread(repetitions: Sequence[Repetition], *, of_own_shifts: bool = False) -> StudySpread:
    """Estimate the spread of the shifts: of all, or of what remains after a shift that a study's configurations share.

    The variance is that of the residuals around the groups' means (and the studies' shifts), minus the part that the
    errors explain. Configurations of one study share its shift, so for all shifts only further studies count as
    repetitions, not their configurations. Each repetition that is missing of five counts as one with the assumed
    spread, which is the minimum until then.
    """
    groups = _indicators([one.group for one in repetitions])
    both = np.hstack([groups, _indicators([one.study for one in repetitions])])
    basis = _basis(both if of_own_shifts else groups)
    number, rank = len(repetitions) - basis.shape[1], _basis(both).shape[1]
    count = number if of_own_shifts else rank - groups.shape[1]
    if not count:
        return _with_assumption(0.0, 0.0, 0)
    logs, variances = np.array([[one.log, one.variance] for one in repetitions]).T
    residuals = logs - basis @ (basis.T @ logs)
    from_errors = variances @ (1 - (basis**2).sum(axis=1))
    return _with_assumption(float(residuals @ residuals) / number, float(from_errors) / number, count)


def common_shifts(repetitions: Sequence[Repetition]) -> dict[str, LogRatioChange]:
    """Estimate the shift that the configurations of each study share, relative to the mean of all these studies.

    It is 0 in a study whose groups are in no other one. If no group connects two parts of the studies, it is relative
    to the mean of each part.
    """
    if not repetitions:
        return {}
    basis = _basis(_indicators([one.group for one in repetitions]))
    studies = _indicators([one.study for one in repetitions])
    within = studies - basis @ (basis.T @ studies)  # orthogonal to the levels of the groups
    weights = np.linalg.pinv(within.T @ within, rcond=1e-9, hermitian=True) @ within.T
    logs, variances = np.array([[one.log, one.variance] for one in repetitions]).T
    # The errors of several configurations are many processes, so their variance counts as known.
    return {
        study: LogRatioChange(float(shift), float(variance), math.inf)
        for study, shift, variance in zip(
            dict.fromkeys(one.study for one in repetitions), weights @ logs, weights**2 @ variances, strict=True
        )
    }


def estimate_spread_of_series(changes: Sequence[LogRatioChange]) -> StudySpread:
    """Estimate the spread from the changes between successive studies, by their median size.

    So a few of them may be changes of level.
    """
    if not changes:
        return _with_assumption(0.0, 0.0, 0)
    total = (median(abs(change.log) for change in changes) / _MEDIAN_OF_NORMAL) ** 2 / 2
    from_errors = fmean(change.variance for change in changes) / 2
    return _with_assumption(total, from_errors, len(changes))


def _with_assumption(total: float, from_errors: float, count: int) -> StudySpread:
    """Return the spread if studies vary by `total` and errors explain a part of it; see `estimate_spread`."""
    share = min(1.0, count / ENOUGH_REPETITIONS)
    variance = share * max(0.0, total - from_errors) + (1 - share) * ASSUMED_STD**2
    if share < 1:
        variance = max(ASSUMED_STD**2, variance)
    # The estimate is as uncertain as the total, of which it may be a small part; what is assumed is certain.
    least = ENOUGH_REPETITIONS if share < 1 else 1
    freedom = max(least, count * (variance / (share * total)) ** 2) if share and total else None
    return StudySpread(math.sqrt(variance), count, freedom)


def _indicators(names: Sequence[str]) -> np.ndarray:
    columns = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.eye(len(columns))[[columns[name] for name in names]].reshape(len(names), len(columns))


def _basis(design: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns."""
    left, sizes, _ = np.linalg.svd(design, full_matrices=False)
    return left[:, sizes > 1e-9 * max(sizes, default=0.0)]


def difference_of_shifts(one: StudySpread, two: StudySpread) -> LogRatioChange:
    """Return the unknown difference of the shifts of two studies; equal spreads are those of one machine."""
    a, b = (LogRatioChange(0.0, spread.std**2, spread.degrees_of_freedom or math.inf) for spread in (one, two))
    return a._replace(variance=2 * a.variance) if one == two else a.subtract(b)


def log_ratio_change(baseline: NestedStepTimes, other: NestedStepTimes) -> LogRatioChange | None:
    """Return the change from `baseline` to `other`; None if one of them has fewer than two processes."""
    one, two = map(step_level, (baseline, other))
    return one.subtract(two) if one is not None and two is not None else None


def compare_studies(baseline: NestedStepTimes, other: NestedStepTimes, shifts: LogRatioChange) -> Ratio:
    """Return the speed-up of `other` over `baseline`, which were measured at different times.

    The estimate is the ratio of mean steps, with an interval that contains the difference of the studies' shifts.
    Raises ValueError if one of them has no step times.
    """
    one, two = map(process_log_means, (baseline, other))
    if not one or not two:
        raise ValueError("no step times")
    change = log_ratio_change(baseline, other)
    if change is None:
        return Ratio(math.exp(fmean(one) - fmean(two) - shifts.log), None, "single_process")
    change = change.subtract(shifts)
    return Ratio(change.ratio, change.ci95, "processes", change.p_value)


def step_level(step_times: NestedStepTimes) -> LogRatioChange | None:
    """Return the log of the mean step, with the variance of the mean over processes; None for one."""
    logs = process_log_means(step_times)
    n = len(logs)
    return LogRatioChange(fmean(logs), float(np.var(logs, ddof=1)) / n, n - 1) if n > 1 else None
