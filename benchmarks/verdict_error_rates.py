"""Measure how often `polybench diff` is right, on pairs of simulated studies of a default size.

Machines are those of `_simulated.py`; in `state`, an `even` machine is 1.4 times slower in the whole second study,
because some machines have two speed states. `false` is the share of repeated studies with a verdict in any
row. `found` is the share of studies whose first engine is a tenth slower and is called slower, among those whose
margin of error reached 5 %. Takes some minutes.

    python benchmarks/verdict_error_rates.py [--studies 400] [--tolerance 0.02]
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

import numpy as np
from _simulated import SCENARIOS, Machine, simulate
from tabulate import tabulate

from polybench.analysis.diff import Candidate, classify
from polybench.schema.analyses import DiffRow
from polybench.stats.statistics import compare_studies, log_ratio_change

_SHAPE = (5, 5, 20)
"""Processes, rounds, steps."""
_TARGET = 0.05


class Score(NamedTuple):
    """Shares of studies; `reached` of those with an injected change."""

    false: float
    reached: float
    found: float


def rows(before: list[np.ndarray], after: list[np.ndarray], tolerance: float) -> list[DiffRow]:
    """Return the verdicts on configurations of as many engines."""
    compared = []
    for number, (one, two) in enumerate(zip(before, after, strict=True)):
        ratio = compare_studies(one.tolist(), two.tolist())
        name = f"engine{number}"
        row = DiffRow(
            configuration=name, engine=name, device="cpu", verdict="no difference", ratio=ratio.speedup, ci95=ratio.ci95
        )
        found = log_ratio_change(one.tolist(), two.tolist())
        assert found is not None
        compared.append(Candidate(row, found))
    return classify(compared, tolerance, all_changed=False)


def score(machine: Machine, engines: int, options: argparse.Namespace, state: float = 1.0) -> Score:
    rng = np.random.default_rng(options.seed)
    false = reached = found = 0
    for _ in range(options.studies):
        one, two, three = (
            [configuration for (configuration,) in (simulate(machine, (1, *_SHAPE), rng)[0] for _ in range(engines))]
            for _ in range(3)
        )
        two, three = (
            [state * configuration for configuration in two],
            [state * configuration for configuration in three],
        )
        three[0] = 1.1 * three[0]
        false += any(row.verdict != "no difference" for row in rows(one, two, options.tolerance))
        row = rows(one, three, options.tolerance)[0]
        assert row.ci95 is not None
        assert row.ratio is not None
        if (row.ci95[1] - row.ci95[0]) / 2 / row.ratio <= _TARGET:
            reached += 1
            found += row.verdict == "slower"
    return Score(false / options.studies, reached / options.studies, found / max(reached, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    machines = [(name, machine, 1.0) for name, machine in SCENARIOS.items()]
    machines.append(("state", SCENARIOS["even"], 1.4))
    lines, scores = [], []
    for engines in options.engines:
        for name, machine, state in machines:
            if engines == 1 and state != 1.0:
                continue  # drift cannot be separated with a single engine
            found = score(machine, engines, options, state)
            lines.append([engines, name, *(f"{value:.3f}" for value in found)])
            scores.append({"engines": engines, "machine": name, **found._asdict()})
    print(tabulate(lines, ["engines", "machine", *Score._fields], tablefmt="pipe", disable_numparse=True))
    print(json.dumps({"benchmark": "verdicts", "tolerance": options.tolerance, "scores": scores}), flush=True)


if __name__ == "__main__":
    main()
