"""Samples to medians, intervals and ratios.

Samples are seconds of a training step, nested as [process][round][sample]; processes and rounds may
differ in length. The fresh process is the unit: identical workers differ by several percent from process to
process, so an interval within one process says nothing about the next one (Kalibera and Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013, https://doi.org/10.1145/2464157.2464160).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Literal

import msgspec
import numpy as np

from polybench.core.document.times import StepSeconds

Process = Sequence[Sequence[float]]
"""Seconds of one process, as [round][sample]."""
NestedSamples = Sequence[Process]
Interval = tuple[float, float]
OfRound = Callable[[Sequence[float]], float]
"""One number for the samples of a round: their median, or their mean."""
Scope = Literal["processes", "within one run"]

LEVEL = 0.95
TREND_ROUNDS = 5
"""With fewer rounds a trend cannot be told from chance: 4 rounds rise by chance in 1 of 24 processes."""
TREND_P = 0.01
"""Each cell of each study is tested, so a level of 5 % would warn in most larger studies."""


class Ratio(msgspec.Struct, frozen=True):
    """Speed of one cell in relation to another; above 1 is faster. `interval95` at the 95 % level."""

    value: float
    interval95: Interval | None
    scope: Scope


def step_seconds(
    samples: NestedSamples, kind: Literal["step", "block"], quiet: NestedSamples | None = None
) -> StepSeconds:
    """Summary of all samples; `median` and its `interval95` are a typical step of a typical process.

    `median` is exp of the mean over processes of the median over rounds of log(median of the round), the
    estimator of `ratio`. The interval is a t interval about it, over the processes (over the rounds, if there
    is one process, and then about their mean; null with one round). Quantiles and spread of block means are
    not those of steps, so they are null where `kind` is "block".

    Args:
        samples: all of them.
        kind: what a sample is.
        quiet: those from which the typical step is taken, if not all.

    Raises:
        ValueError: there is no sample.
    """
    seconds = np.array([second for process in samples for one_round in process for second in one_round])
    if not seconds.size:
        raise ValueError("no samples")
    typical, interval = _typical(quiet or samples, median)
    each_is_a_step = kind == "step"
    return StepSeconds(
        median=typical,
        mean=float(seconds.mean()),
        min=float(seconds.min()),
        p05=float(np.percentile(seconds, 5)) if each_is_a_step else None,
        p95=float(np.percentile(seconds, 95)) if each_is_a_step else None,
        std=float(seconds.std(ddof=1)) if each_is_a_step and seconds.size > 1 else None,
        n=seconds.size,
        interval95=interval,
    )


def mean_step(samples: NestedSamples) -> tuple[float, Interval | None]:
    """`median` and `interval95` of `step_seconds`, from the rounds' means instead of their medians.

    A round's mean has all that happened in it. Its median leaves out what fewer than half of its steps met,
    such as the pauses of a garbage collector.

    Raises:
        ValueError: there is no sample.
    """
    return _typical(samples, fmean)


def _typical(samples: NestedSamples, of_round: OfRound) -> tuple[float, Interval | None]:
    """The mean over processes of the median over rounds, in logs, of one number for each round."""
    processes = [logs for process in samples if (logs := _log_levels(process, of_round))]
    if not processes:
        raise ValueError("no samples")
    levels = [median(logs) for logs in processes] if len(processes) > 1 else processes[0]
    return math.exp(fmean(levels)), _of_logs(levels)


def ratio(baseline: NestedSamples, other: NestedSamples, of_round: OfRound = median) -> Ratio:
    """Speed-up of `other` against `baseline`.

    exp of the mean over processes of the median over rounds of log(median(baseline) / median(other)). A
    process and a round of one are paired with those of the same index of the other, since they ran side by
    side; what only one of them has, or where a round is empty, is left out. The interval is a t interval over
    the processes (over the rounds, if there is one process, and then about their mean).

    The median over rounds, not their mean: what happens to a machine happens to some rounds. It covers as
    well, and is half as wide where work comes in bursts (benchmarks/estimators.py).

    The t interval, not a hierarchical bootstrap (processes, rounds, steps), because it covers better where
    there are few processes: of 600 simulated studies of five processes each, on an even, drifting, bimodal or
    busy machine, 0.95 to 0.98 of the t intervals have the truth, 0.82 to 0.92 of the bootstrap's
    (benchmarks/estimators.py, and tests/core/test_interval_coverage.py).

    With another `of_round` it is of that in place of the medians of the rounds.

    Raises:
        ValueError: no round was measured by both.
    """
    pairs = [
        logs for one, two in zip(baseline, other, strict=False) if (logs := _log_ratios(one, two, of_round))
    ]
    if not pairs:
        raise ValueError("no round was measured by both cells")
    scope: Scope = "processes" if len(pairs) > 1 else "within one run"
    levels = [median(logs) for logs in pairs] if len(pairs) > 1 else pairs[0]
    return Ratio(math.exp(fmean(levels)), _of_logs(levels), scope)


def process_levels(samples: NestedSamples) -> list[float]:
    """The log of a typical step of each process: the median over rounds of the log of a round's median."""
    return [median(logs) for process in samples if (logs := _log_levels(process, median))]


def differs(ratio: Ratio) -> bool | None:
    """Whether the interval excludes 1; None, no verdict, where only one run is known."""
    if ratio.scope == "within one run" or ratio.interval95 is None:
        return None
    low, high = ratio.interval95
    return not low <= 1 <= high


def difference(baseline: Sequence[float], other: Sequence[float]) -> tuple[float, Interval | None]:
    """Mean of `other` less `baseline`, pair by pair, with a paired t interval; None for one pair.

    Pairs are of what has something in common, as two trainings from the same initial weights.

    Raises:
        ValueError: they differ in length, or there is no pair.
    """
    differences = [two - one for one, two in zip(baseline, other, strict=True)]
    if not differences:
        raise ValueError("no pairs")
    return fmean(differences), student_interval(differences)


def mean_of_rounds(values: Sequence[Sequence[float]]) -> tuple[float, Interval | None]:
    """Mean over processes of the mean over rounds, of values [process][round], with its t interval.

    Unlike `step_seconds` it is linear: parts and what is left of a whole add up to it. The interval is over
    processes (over rounds, if there is one process; null with one round).

    Raises:
        ValueError: there is no value.
    """
    processes = [list(rounds) for rounds in values if rounds]
    if not processes:
        raise ValueError("no values")
    levels = [fmean(rounds) for rounds in processes] if len(processes) > 1 else processes[0]
    return fmean(levels), student_interval(levels)


def half_width(ratio: Ratio) -> float:
    """Half the interval's width over the ratio: the precision reached; infinite without an interval."""
    if ratio.interval95 is None:
        return math.inf
    low, high = ratio.interval95
    return (high - low) / 2 / ratio.value


def rising_trend(samples: NestedSamples) -> float | None:
    """By which fraction steps became slower from the first round to the last; None where no rise is shown.

    Theil-Sen slope and Kendall's tau of the logarithms of the rounds' medians, each process about its own
    centre; both look at order or medians only, so that one disturbed round makes no trend.
    """
    rounds: list[int] = []
    levels: list[float] = []
    for process in samples:
        logs = _log_levels(process, median)
        if len(logs) >= TREND_ROUNDS:
            centre = median(logs)
            rounds.extend(range(len(logs)))
            levels.extend(log - centre for log in logs)
    if len(set(levels)) < 2:
        return None

    from scipy.stats import kendalltau, theilslopes

    slope = float(theilslopes(levels, rounds).slope)
    if slope <= 0 or kendalltau(rounds, levels).pvalue >= TREND_P:
        return None
    return math.expm1(slope * max(rounds))


def steps_to_break_even(startup_a: float, step_a: float, startup_b: float, step_b: float) -> int | None:
    """After how many steps `a`, slower to start, has caught up with `b`; all in seconds.

    A start ends with its first step. 0 if `a` does not start later, None if it never catches up.
    """
    behind = startup_a - startup_b
    if behind <= 0:
        return 0
    gain = step_b - step_a
    return 1 + math.ceil(behind / gain) if gain > 0 else None


def _log_levels(process: Process, of_round: OfRound) -> list[float]:
    """Log of that number of each round that has samples."""
    return [math.log(of_round(one_round)) for one_round in process if one_round]


def _log_ratios(baseline: Process, other: Process, of_round: OfRound) -> list[float]:
    """Log of how much faster `other` was, one a round that both have."""
    return [
        math.log(of_round(one) / of_round(two))
        for one, two in zip(baseline, other, strict=False)
        if one and two
    ]


def _of_logs(logs: Sequence[float]) -> Interval | None:
    """exp of Student's interval for the mean of `logs`; None for fewer than two."""
    interval = student_interval(logs)
    return interval and (math.exp(interval[0]), math.exp(interval[1]))


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval for the mean of `values`, at the 95 % level; None for fewer than two."""
    n = len(values)
    if n < 2:
        return None
    half = student_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    centre = fmean(values)
    return centre - half, centre + half


def median_interval(values: Sequence[float]) -> Interval | None:
    """The least and the most of `values`, about their median; None for fewer than six.

    Whatever the distribution, the median lies between them but for the chance that all are on one side of
    it, 2 / 2^n: of six values that is 3 %.
    """
    return (min(values), max(values)) if len(values) >= 6 else None


def student_quantile(freedom: float) -> float:
    """Half the width of a 95 % interval, in standard errors."""
    from scipy.special import stdtrit  # the quantile itself: scipy.stats takes a second to import

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
