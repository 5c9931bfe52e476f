"""How often `polybench diff` is right, on pairs of simulated studies of a default size.

Machines are those of `_simulated.py`; `state` is `even`, and all of the second study takes 1.4 times as
long: some machines have two states of speed. `false` is the share of repeated studies with a verdict in any
row, `found` that of studies whose first engine takes a tenth longer and is called slower, of those whose
interval reached a half width of 5 %. Takes some minutes.

    python benchmarks/verdicts.py [--studies 400] [--tolerance 0.02]
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

import numpy as np
from _simulated import SCENARIOS, Machine, simulate
from tabulate import tabulate

from polybench.core.document.diff import DiffRow
from polybench.core.shifts import ratio_of_studies, shift
from polybench.report.verdicts import Compared, judged

_SHAPE = (5, 5, 20)
"""Processes, rounds, steps."""
_TARGET = 0.05


class Score(NamedTuple):
    """Shares of studies; `reached` of those with a planted change."""

    false: float
    reached: float
    found: float


def rows(before: list[np.ndarray], after: list[np.ndarray], tolerance: float) -> list[DiffRow]:
    """Verdicts on cells of as many engines."""
    compared = []
    for number, (one, two) in enumerate(zip(before, after, strict=True)):
        ratio = ratio_of_studies(one.tolist(), two.tolist())
        name = f"engine{number}"
        row = DiffRow(
            cell=name,
            engine=name,
            device="cpu",
            verdict="no difference",
            ratio=ratio.value,
            interval95=ratio.interval95,
        )
        found = shift(one.tolist(), two.tolist())
        assert found is not None
        compared.append(Compared(row, found))
    return judged(compared, tolerance, all_changed=False)


def score(machine: Machine, engines: int, options: argparse.Namespace, state: float = 1.0) -> Score:
    rng = np.random.default_rng(options.seed)
    false = reached = found = 0
    for _ in range(options.studies):
        one, two, three = (
            [cell for (cell,) in (simulate(machine, (1, *_SHAPE), rng)[0] for _ in range(engines))]
            for _ in range(3)
        )
        two, three = [state * cell for cell in two], [state * cell for cell in three]
        three[0] = 1.1 * three[0]
        false += any(row.verdict != "no difference" for row in rows(one, two, options.tolerance))
        row = rows(one, three, options.tolerance)[0]
        assert row.interval95 is not None
        assert row.ratio is not None
        if (row.interval95[1] - row.interval95[0]) / 2 / row.ratio <= _TARGET:
            reached += 1
            found += row.verdict == "slower"
    return Score(false / options.studies, reached / options.studies, found / max(reached, 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
                continue  # with nothing beside it, nobody can tell
            found = score(machine, engines, options, state)
            lines.append([engines, name, *(f"{value:.3f}" for value in found)])
            scores.append({"engines": engines, "machine": name, **found._asdict()})
    print(tabulate(lines, ["engines", "machine", *Score._fields], tablefmt="pipe", disable_numparse=True))
    print(json.dumps({"benchmark": "verdicts", "tolerance": options.tolerance, "scores": scores}), flush=True)


if __name__ == "__main__":
    main()
