"""Measure coverage if some processes of one engine are in a slower state, and how often a test would notice it.

Processes differ by 3 %, and each is a fifth slower with a probability. The first table has the share of 95 % intervals
that contain the truth. The second one has a test for two groups that is wrong in 1 % of the studies with normal noise:
the share of studies with two states in which it finds them, and in which it is wrong with an exponential tail.

    python benchmarks/mixtures.py [--draws 20000]
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t
from tabulate import tabulate

Array = NDArray[np.float64]

_SPREAD, _SLOWER = 0.03, 0.2


def draw(rng: np.random.Generator, shape: tuple[int, int], probability: float) -> Array:
    """Draw the mean steps (study, process)."""
    return np.exp(rng.normal(0, _SPREAD, shape)) * np.where(rng.random(shape) < probability, 1 + _SLOWER, 1.0)


def covers(levels: Array, truth: float) -> float:
    """Return the share of t intervals over processes that contain the truth."""
    half = t.ppf(0.975, levels.shape[1] - 1) * levels.std(1, ddof=1) / np.sqrt(levels.shape[1])
    return float(np.mean(np.abs(levels.mean(1) - truth) <= half))


def logs(seconds: Array) -> Array:
    """Return the levels whose mean is the log of the mean step, as in `statistics.ratio`."""
    mean = seconds.mean(1, keepdims=True)
    return np.log(mean) + seconds / mean - 1


def separation(seconds: Array) -> Array:
    """Return the largest distance of two groups, of at least two processes, over the spread within them."""
    levels, found = np.sort(np.log(seconds), 1), np.zeros(len(seconds))
    for size in range(2, levels.shape[1] - 1):
        groups = levels[:, :size], levels[:, size:]
        within = sum(((one - one.mean(1, keepdims=True)) ** 2).sum(1) for one in groups)
        distance = groups[1].mean(1) - groups[0].mean(1)
        found = np.maximum(found, distance / np.sqrt(within / (levels.shape[1] - 2)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = []
    for probability in (0.1, 0.3, 0.5):
        for processes in (3, 5, 7, 10, 20):
            shape = options.draws, processes
            one, steady, other = (draw(rng, shape, share) for share in (probability, 0.0, probability))
            mean = 1 + probability * _SLOWER
            shares = (
                covers(one, mean * np.exp(_SPREAD**2 / 2)),
                covers(logs(one) - logs(steady), float(np.log(mean))),
                covers(logs(one) - logs(other), 0.0),
                (1 - probability) ** processes,
            )
            rows.append([probability, processes, *(f"{share:.2f}" for share in shares)])
    columns = ("probability", "processes", "step", "ratio, one engine", "ratio, both", "no slow process is drawn")
    print(tabulate(rows, columns, tablefmt="pipe", disable_numparse=True), end="\n\n")
    rows = []
    for processes in (5, 7, 10, 20):
        shape = options.draws, processes
        limit = np.quantile(separation(draw(rng, shape, 0.0)), 0.99)
        skewed = np.exp(_SPREAD * rng.exponential(1, shape))
        found = [separation(seconds) > limit for seconds in (draw(rng, shape, 0.3), draw(rng, shape, 0.5), skewed)]
        rows.append([processes, *(f"{one.mean():.2f}" for one in found)])
    columns = ("processes", "found, 0.3", "found, 0.5", "wrong, exponential tail")
    print(tabulate(rows, columns, tablefmt="pipe", disable_numparse=True))


if __name__ == "__main__":
    main()
