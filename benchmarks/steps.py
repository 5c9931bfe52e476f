"""How often `polybench history` finds a step, on simulated series of studies.

Each study has a level, whose logarithm scatters by `--noise`, and the interval that its 5 processes give it;
the step is at any study with two on either side at least. `none` is the share of series without a step in
which one is found; `found` that of series with a step at the right study and no other one, `near` at that
study or a neighbour. Takes a minute.

    python benchmarks/steps.py [--series 800] [--step 0.1] [--noise 0.02]
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

from polybench.core.steps import SHORTEST, pieces
from polybench.report.diff import TOLERANCE

_PROCESSES = 5


class Score(NamedTuple):
    """Shares of series; of those without a step, and of those with one."""

    none: float
    found: float
    near: float


def steps(levels: np.ndarray, noise: float, rng: np.random.Generator) -> list[int]:
    """At which studies `polybench history` sees steps.

    Args:
        levels: true logarithms of the step times of the studies, (n,).
        noise: standard deviation of what is measured of one.
        rng: of the processes.
    """
    processes = levels[:, None] + math.sqrt(_PROCESSES) * noise * rng.normal(size=(len(levels), _PROCESSES))
    half_widths = stats.t.ppf(0.975, _PROCESSES - 1) * stats.sem(processes, axis=1)
    found = pieces(processes.mean(axis=1).tolist(), half_widths.tolist())
    return [
        two.start
        for one, two in itertools.pairwise(found)
        if abs(one.level - two.level) > math.log1p(TOLERANCE)
    ]


def score(studies: int, options: argparse.Namespace) -> Score:
    rng = np.random.default_rng([options.seed, studies])
    none = found = near = 0
    for _ in range(options.series):
        none += bool(steps(np.zeros(studies), options.noise, rng))
        at = int(rng.integers(SHORTEST, studies - SHORTEST + 1))
        levels = np.where(np.arange(studies) < at, 0.0, math.log1p(options.step))
        seen = steps(levels, options.noise, rng)
        found += seen == [at]
        near += len(seen) == 1 and abs(seen[0] - at) <= 1
    return Score(*(count / options.series for count in (none, found, near)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    print(
        json.dumps({"benchmark": "steps", "step": options.step, "noise": options.noise, "scores": told}),
        flush=True,
    )


if __name__ == "__main__":
    main()
