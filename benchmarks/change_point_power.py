"""Measure how often `polybench history` finds a change point, on simulated series of studies.

Each study has a level, whose logarithm varies by `--noise`, and the interval of its 5 processes. The change is
at a random study with at least two on either side. `none` is the share of series without a change in
which one is found; `found` is the share of series with a change point at the right study and no other; `near` allows
a neighbouring study. Takes a minute.

    python benchmarks/change_point_power.py [--series 800] [--step 0.1] [--noise 0.02]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from typing import NamedTuple

import numpy as np
from scipy import stats
from tabulate import tabulate

from polybench.analysis.diff import TOLERANCE
from polybench.stats.change_points import MIN_SEGMENT_POINTS, segment

_PROCESSES = 5


class Score(NamedTuple):
    """Shares of series, without and with a change."""

    none: float
    found: float
    near: float


def steps(levels: np.ndarray, noise: float, rng: np.random.Generator) -> list[int]:
    """Return the studies at which `polybench history` finds change points.

    Args:
        levels: true logarithms of the step times, (n,).
        noise: standard deviation of a study.
        rng: random generator of the processes.
    """
    processes = levels[:, None] + math.sqrt(_PROCESSES) * noise * rng.normal(size=(len(levels), _PROCESSES))
    margins = stats.t.ppf(0.975, _PROCESSES - 1) * stats.sem(processes, axis=1)
    found = segment(processes.mean(axis=1).tolist(), margins.tolist())
    return [two.start for one, two in itertools.pairwise(found) if abs(one.level - two.level) > math.log1p(TOLERANCE)]


def score(studies: int, options: argparse.Namespace) -> Score:
    rng = np.random.default_rng([options.seed, studies])
    none = found = near = 0
    for _ in range(options.series):
        none += bool(steps(np.zeros(studies), options.noise, rng))
        at = int(rng.integers(MIN_SEGMENT_POINTS, studies - MIN_SEGMENT_POINTS + 1))
        levels = np.where(np.arange(studies) < at, 0.0, math.log1p(options.step))
        seen = steps(levels, options.noise, rng)
        found += seen == [at]
        near += len(seen) == 1 and abs(seen[0] - at) <= 1
    return Score(*(count / options.series for count in (none, found, near)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=800, help="of each length, without a step and with one")
    parser.add_argument("--studies", type=int, nargs="+", default=[6, 10, 20, 60])
    parser.add_argument("--step", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    scores = {studies: score(studies, options) for studies in options.studies}
    lines = [[studies, *(f"{value:.3f}" for value in one)] for studies, one in scores.items()]
    print(tabulate(lines, ["studies", *Score._fields], tablefmt="pipe", disable_numparse=True))
    told = [{"studies": studies, **one._asdict()} for studies, one in scores.items()]
    print(json.dumps({"benchmark": "steps", "step": options.step, "noise": options.noise, "scores": told}), flush=True)


if __name__ == "__main__":
    main()
