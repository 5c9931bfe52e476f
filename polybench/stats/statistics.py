"""Intervals, ratios and trends of step times.

Step times are seconds of a training step, nested as [process][round][step]; processes and rounds may differ
in length. The unit of replication is the process run: identical workers differ by several percent from
process to process, so an interval within one process does not predict the next one. See Kalibera and Jones,
"Rigorous benchmarking in reasonable time", ISMM 2013, https://doi.org/10.1145/2464157.2464160.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from statistics import fmean, median
from typing import Literal, NamedTuple

import numpy as np

from polybench.schema.result import Comparison, Interval, Scope, StepTime

Process = Sequence[Sequence[float]]
"""Seconds of one process, as [round][step]."""
NestedStepTimes = Sequence[Process]

CONFIDENCE_LEVEL = 0.95
TREND_ROUNDS = 5
"""Minimum rounds, or process runs, for a trend test: 4 rounds increase by chance in 1 of 24 processes."""
TREND_P = 0.01
"""Significance level. Every configuration is tested, so 5 % would warn in most larger studies."""
NOTABLE_TREND = 0.01
"""Relative increase of step times over rounds or process runs from which polybench prints a warning."""


class Ratio(NamedTuple):
    """Speed of one configuration relative to another; above 1 is faster."""

    speedup: float
    ci95: Interval | None
    scope: Scope
    p_value: float | None = None


def summarize_step_times(
    step_times: NestedStepTimes, resolution: Literal["step", "block"], unaffected: NestedStepTimes | None = None
) -> StepTime:
    """Summarize step times; `mean` and `ci95` describe the mean step, `median` a typical one.

    These are of the `unaffected` step times, by default all; see `mean_step` and `typical_step`. Quantiles and spread
    of block means are not those of steps, so they are null if `resolution` is "block". Raises ValueError without step
    times.
    """
    seconds = np.array([second for process in step_times for one_round in process for second in one_round])
    if not seconds.size:
        raise ValueError("no step times")
    mean, interval = mean_step(unaffected or step_times)
    each_is_a_step = resolution == "step"
    return StepTime(
        mean=mean,
        ci95=interval,
        median=typical_step(unaffected or step_times),
        min=float(seconds.min()),
        p05=float(np.percentile(seconds, 5)) if each_is_a_step else None,
        p95=float(np.percentile(seconds, 95)) if each_is_a_step else None,
        std=float(seconds.std(ddof=1)) if each_is_a_step and seconds.size > 1 else None,
        n=seconds.size,
    )


def typical_step(step_times: NestedStepTimes) -> float:
    """Return exp of the mean over processes of the median over rounds of log(median step of the round).

    It leaves out what happens in fewer than half of the steps, such as pauses of the garbage collector. For one
    process, it is the mean over its rounds. Raises ValueError without step times.
    """
    processes = [
        [math.log(median(one_round)) for one_round in process if one_round] for process in step_times if any(process)
    ]
    if not processes:
        raise ValueError("no step times")
    return math.exp(fmean([median(logs) for logs in processes] if len(processes) > 1 else processes[0]))


def mean_step(step_times: NestedStepTimes) -> tuple[float, Interval | None]:
    """Return the mean over processes of the mean of all their steps, with a t interval.

    It contains everything that happens in a step. (The median over rounds of their means leaves out pauses that hit
    fewer than half of the rounds.) The interval is over the processes' deviations relative to the mean, so that it
    is above 0; for one process, over its rounds. Raises ValueError without step times.
    """
    levels = _mean_levels(step_times)
    if not levels:
        raise ValueError("no step times")
    mean = fmean(levels)
    return mean, _scaled(mean, ratio_interval([level / mean - 1 for level in levels]))


def ratio(baseline: NestedStepTimes, other: NestedStepTimes) -> Ratio:
    """Return the speed-up of `other` over `baseline`: the mean step of `baseline` over that of `other`.

    A training consists of mean steps: their ratio is that of whole trainings, and means the same for steps that were
    timed one by one and in blocks. The interval is a t interval over the pairs of processes that ran side by side,
    whose common deviations cancel. For one process, it is over the rounds that both have.

    Why a t interval: it covers better than a hierarchical bootstrap (processes, rounds, steps) for few
    processes. In 600 simulated studies of five processes, on a steady, drifting, bimodal or busy machine, the
    t interval contains the truth in 0.93 to 0.97 of the studies. The bootstrap's contains it in 0.83 to 0.91;
    see benchmarks/estimators.py and tests/stats/test_interval_coverage.py.

    Raises ValueError if no process was measured for both.
    """
    pairs = _pairs(baseline, other)
    rounds = [both for both in zip(*pairs[0], strict=False) if all(both)]
    if len(pairs) > 1 or not rounds:
        return _ratio_of_levels(*pairs)
    return _ratio_of_levels(*(([one], [two]) for one, two in rounds))._replace(scope="single_process")


def _pairs(baseline: NestedStepTimes, other: NestedStepTimes) -> list[tuple[Process, Process]]:
    """Return the processes that were measured for both, at least one."""
    pairs = [(one, two) for one, two in zip(baseline, other, strict=False) if any(one) and any(two)]
    if not pairs:
        raise ValueError("no process was measured for both configurations")
    return pairs


def _ratio_of_levels(*pairs: tuple[Process, Process]) -> Ratio:
    """Return the ratio of the mean of the first of each pair to that of the second, with an interval over pairs."""
    ones, twos = (process_means(of_one) for of_one in zip(*pairs, strict=True))
    logs = [one - two for one, two in zip(_logs_about_mean(ones), _logs_about_mean(twos), strict=True)]
    scope: Scope = "processes" if len(pairs) > 1 else "single_process"
    return Ratio(fmean(ones) / fmean(twos), ratio_interval(logs), scope, p_value(logs))


def p_value(levels: Sequence[float]) -> float | None:
    """Return Student's p-value of a mean of 0; None for fewer than two values."""
    interval = student_interval(levels)
    if interval is None:
        return None
    from scipy.special import stdtr

    degrees_of_freedom = len(levels) - 1
    error = (interval[1] - interval[0]) / 2 / student_quantile(degrees_of_freedom)
    mean = fmean(levels)
    return 2 * float(stdtr(degrees_of_freedom, -abs(mean) / error)) if error else float(mean == 0)


def p_value_of_interval(interval: Interval, degrees_of_freedom: int) -> float:
    """Return Student's p-value of a ratio of 1, from the ratio's 95 % interval."""
    from scipy.special import stdtr

    low, high = map(math.log, interval)
    if low == high:
        return float(low == 0)
    error = (high - low) / 2 / student_quantile(degrees_of_freedom)
    return 2 * float(stdtr(degrees_of_freedom, -abs(low + high) / 2 / error))


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Return p-values for which the chance of any false rejection is the significance level.

    Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979.
    """
    corrected, largest = list(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(corrected)), key=corrected.__getitem__)):
        largest = corrected[index] = max(largest, min(1.0, (len(corrected) - rank) * corrected[index]))
    return corrected


def process_log_means(step_times: NestedStepTimes) -> list[float]:
    """Return the log of the mean step of each process, such that their mean is the log of `mean_step`."""
    return _logs_about_mean(process_means(step_times))


def _logs_about_mean(levels: Sequence[float]) -> list[float]:
    """Return logs whose mean is the log of the mean; their deviations are the relative ones of the levels."""
    return [math.log(fmean(levels)) + level / fmean(levels) - 1 for level in levels]


def difference(baseline: Sequence[float], other: Sequence[float]) -> tuple[float, Interval | None, float | None]:
    """Return the mean of `other` - `baseline` over pairs, with a paired t interval and p-value (None for one pair).

    Pairs have something in common, such as trainings from the same initial weights. Raises ValueError if the
    lengths differ, or without pairs.
    """
    differences = [two - one for one, two in zip(baseline, other, strict=True)]
    if not differences:
        raise ValueError("no pairs")
    return fmean(differences), student_interval(differences), p_value(differences)


def mean_over_rounds(values: Sequence[Sequence[float]]) -> tuple[float, Interval | None]:
    """Return the mean over processes of the mean over rounds, of values [process][round], with a t interval.

    Unlike `summarize_step_times`, it is linear: operations and the unattributed rest add up to the whole. The
    interval is over processes, or over rounds if there is one process; None for a single round. Raises
    ValueError without values.
    """
    processes = [list(rounds) for rounds in values if rounds]
    if not processes:
        raise ValueError("no values")
    levels = [fmean(rounds) for rounds in processes] if len(processes) > 1 else processes[0]
    return fmean(levels), student_interval(levels)


def margin_of_error(ratio: Ratio | Comparison) -> float:
    """Return the interval's half width over the ratio; infinite without an interval."""
    if ratio.ci95 is None:
        return math.inf
    low, high = ratio.ci95
    return (high - low) / 2 / ratio.speedup


def upward_trend(step_times: NestedStepTimes) -> float | None:
    """Return the relative slow-down of steps from the first round to the last; None if it is not significant.

    Medians of rounds are compared within each process only, so a single affected round makes no trend.
    """
    rounds = [[median(one_round) for one_round in process if one_round] for process in step_times]
    return _upward_trend([levels for levels in rounds if len(levels) >= TREND_ROUNDS])


def upward_trend_of_processes(results: Sequence[NestedStepTimes]) -> float | None:
    """Return the relative slow-down from the first process runs of a study to the last; None if not significant.

    Process runs are compared within each result only. Those with the same index ran side by side.
    """
    processes = map(process_means, results)
    return _upward_trend([levels for levels in processes if len(levels) >= TREND_ROUNDS])


def _upward_trend(series: Sequence[Sequence[float]]) -> float | None:
    """Return the relative increase from the first value of a series to the last, by the median of pairwise slopes.

    The sum of Kendall's statistics of all series must be significant. Both depend on order or medians only. Mann,
    "Nonparametric tests against trend", Econometrica 13, 1945; with its variance for ties.
    """
    slopes: list[float] = []
    variance = 0.0
    for values in series:
        logs, n = np.log(values), len(values)
        first, second = np.triu_indices(n, 1)
        slopes += ((logs[second] - logs[first]) / (second - first)).tolist()
        ties = np.unique(logs, return_counts=True)[1]
        variance += sum(sign * k * (k - 1) * (2 * k + 5) / 18 for sign, k in ((1, n), *((-1, int(k)) for k in ties)))
    if not variance:
        return None
    slope, score = median(slopes), float(np.sign(slopes).sum())
    if slope <= 0 or math.erfc((score - 1) / math.sqrt(2 * variance)) >= TREND_P:
        return None
    return math.expm1(slope * (max(map(len, series)) - 1))


def steps_to_break_even(startup_a: float, step_a: float, startup_b: float, step_b: float) -> int | None:
    """Return after how many steps `a`, which starts later, has caught up with `b`; all times in seconds.

    A start ends with its first step. The result is 0 if `a` does not start later, None if it never catches
    up.
    """
    behind = startup_a - startup_b
    if behind <= 0:
        return 0
    gain = step_b - step_a
    return 1 + math.ceil(behind / gain) if gain > 0 else None


def process_means(step_times: NestedStepTimes) -> list[float]:
    """Return the mean of all steps of each process."""
    return [fmean(chain.from_iterable(process)) for process in step_times if any(process)]


def _mean_levels(step_times: NestedStepTimes) -> list[float]:
    """Return the mean of all steps of each process; for one process, the mean of each round."""
    processes = process_means(step_times)
    if len(processes) > 1:
        return processes
    return [fmean(one_round) for process in step_times for one_round in process if one_round]


def _scaled(factor: float, interval: Interval | None) -> Interval | None:
    return interval and (factor * interval[0], factor * interval[1])


def ratio_interval(logs: Sequence[float]) -> Interval | None:
    """Return exp of Student's interval for the mean of `logs`; None for fewer than two values."""
    interval = student_interval(logs)
    return interval and (math.exp(interval[0]), math.exp(interval[1]))


def student_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's 95 % interval for the mean of `values`; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    half = student_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    centre = fmean(values)
    return centre - half, centre + half


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the range of `values` as an interval for their median; None for fewer than six values.

    For any distribution, the median is outside only if all values are on one side of it: probability 2 / 2^n,
    3 % for six values.
    """
    return (min(values), max(values)) if len(values) >= 6 else None


def student_quantile(degrees_of_freedom: float) -> float:
    """Return the half width of a 95 % interval in standard errors."""
    from scipy.special import stdtrit  # the quantile itself: scipy.stats takes a second to import

    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE_LEVEL) / 2))


def compare_turns(baseline: NestedStepTimes, other: NestedStepTimes, work: float = 1.0) -> Ratio:
    """Return the speed-up of `other` over `baseline`, which were measured in turns; a step of it does more `work`.

    Process runs with the same index form a pair, because what moved the machine moved both; their rounds do not. The
    estimate is the ratio of mean steps, with a t interval over pairs.
    Raises ValueError without a pair.
    """
    speedup, interval, scope, _ = _ratio_of_levels(*_pairs(baseline, other))
    return Ratio(work * speedup, _scaled(work, interval), scope)


def q_values(p_values: Sequence[float]) -> list[float]:
    """Return the q-value of each p-value: the smallest false discovery rate at which it is significant.

    Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57, 1995. It also holds
    for rows that depend on each other positively because they share a machine.
    """
    n, order = len(p_values), np.argsort(p_values)
    bounds = np.asarray(p_values)[order] * n / np.arange(1, n + 1)
    found = np.empty(n)
    found[order] = np.minimum.accumulate(bounds[::-1])[::-1]
    return found.tolist()
