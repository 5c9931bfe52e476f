"""Variance components of nested random effects, by the method of moments.

A value is the sum of an effect of its process, one of its round, and its own. Source: Searle, Casella, McCulloch,
"Variance Components", 1992, section 3.5. The interval is that of Williams (1962), accurate to a few percent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, fdtri

_TAIL = 0.025


class Components(NamedTuple):
    """Standard deviations of each effect, of logarithms: 0.01 is 1 %."""

    processes: float
    processes_interval: tuple[float, float]
    """95 % interval of the variation between processes."""
    rounds: float
    samples: float


def components(values: NDArray[np.float64]) -> Components:
    """Estimate the components of `values` (process, round, value), at least two of each.

    An estimate below zero becomes zero.
    """
    processes, rounds, samples = values.shape
    of_round, of_process = values.mean(axis=2), values.mean(axis=(1, 2))
    freedom = processes - 1, processes * (rounds - 1)
    within = float(values.var(axis=2, ddof=1).mean())
    between_rounds = float(samples * of_round.var(axis=1, ddof=1).mean())
    between_processes = float(rounds * samples * of_process.var(ddof=1))

    def of_processes(least: float, divisor: float = 1.0) -> float:
        return math.sqrt(max(0.0, (between_processes - least) / (rounds * samples * divisor)))

    # chdtri uses the upper tail's probability, fdtri the lower one's.
    interval = (
        of_processes(between_rounds * fdtri(*freedom, 1 - _TAIL), chdtri(freedom[0], _TAIL) / freedom[0]),
        of_processes(between_rounds * fdtri(*freedom, _TAIL), chdtri(freedom[0], 1 - _TAIL) / freedom[0]),
    )
    return Components(
        of_processes(between_rounds),
        interval,
        math.sqrt(max(0.0, (between_rounds - within) / samples)),
        math.sqrt(within),
    )
