"""Studies of two configurations on simulated machines with a known ratio.

Processes and rounds vary like on the machine of tests/stats/test_interval_coverage.py; each scenario adds
one effect. Effects of the machine (drift, bursts) hit whichever configuration is measured at that time; effects of a
process (its mode, its level) are its own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TRUE_RATIO = 1.25
_BURST_STEPS = 60
"""Length of a burst: about a second of another program."""
_BURST_FACTOR = 2.0


class Machine(NamedTuple):
    """Default standard deviations of logarithms."""

    process: float = 0.03
    round: float = 0.01
    drift: float = 0.0
    """Standard deviation of the slope and of the random walk through one process's rounds."""
    bursts: float = 0.0
    """Share of steps that start a burst, times its length."""
    slow_processes: float = 0.0
    """Share of processes that are a fifth slower."""
    skewed: bool = False
    """True if processes and rounds have an exponential right tail instead of a normal distribution."""


SCENARIOS = {
    "even": Machine(),
    "drift": Machine(drift=0.10),
    "bursts": Machine(bursts=0.10),
    "bimodal": Machine(slow_processes=0.3),
    "skew": Machine(process=0.06, round=0.03, skewed=True),
    "all": Machine(drift=0.05, bursts=0.05, slow_processes=0.15, skewed=True),
}


def simulate(machine: Machine, shape: tuple[int, int, int, int], rng: np.random.Generator) -> list[Array]:
    """Simulate seconds of the baseline and of a configuration that is `TRUE_RATIO` times as fast.

    Args:
        machine: the scenario.
        shape: studies, processes, rounds, steps of both results.
        rng: the random generator.
    """
    hour = _of_the_hour(machine, shape, rng)
    first = rng.random((*shape[:3], 1)) < 0.5  # the order of configurations in a round is random
    one, two = hour[..., 0, :], hour[..., 1, :]
    when = np.where(first, one, two), np.where(first, two, one)
    levels = 0.0, -math.log(TRUE_RATIO)
    return [
        0.0165 * np.exp(level + then + _of_the_cell(machine, shape, rng))
        for level, then in zip(levels, when, strict=True)
    ]


def _of_the_hour(machine: Machine, shape: tuple[int, int, int, int], rng: np.random.Generator) -> Array:
    """Logarithms of machine effects as (study, process, round, position in the round, step)."""
    studies, processes, rounds, steps = shape
    length = 2 * rounds * steps
    time = np.linspace(-0.5, 0.5, length)
    slope = rng.normal(0, machine.drift, (studies, processes, 1)) * time
    walk = rng.normal(0, machine.drift / math.sqrt(2 * rounds), (studies, processes, 2 * rounds)).cumsum(-1)
    begins = (rng.random((studies, processes, length)) < machine.bursts / _BURST_STEPS).cumsum(-1)
    begun_before = np.zeros_like(begins)
    begun_before[..., _BURST_STEPS:] = begins[..., :-_BURST_STEPS]
    bursts = np.where(begins > begun_before, math.log(_BURST_FACTOR), 0.0)
    return np.asarray((slope + np.repeat(walk, steps, axis=-1) + bursts).reshape(studies, processes, rounds, 2, steps))


def _of_the_cell(machine: Machine, shape: tuple[int, int, int, int], rng: np.random.Generator) -> Array:
    """Logarithms of process effects as (study, process, round, step); steps have a right tail and outliers."""
    draw = rng.exponential if machine.skewed else lambda scale, size: rng.normal(0, scale, size)
    process = draw(machine.process, (*shape[:2], 1, 1))
    slow = np.where(rng.random((*shape[:2], 1, 1)) < machine.slow_processes, math.log(1.2), 0.0)
    one_round = draw(machine.round, (*shape[:3], 1))
    tail = rng.exponential(0.02, shape)
    outliers = np.where(rng.random(shape) < 0.05, math.log(1.5), 0.0)
    return np.asarray(process + slow + one_round + tail + outliers)
