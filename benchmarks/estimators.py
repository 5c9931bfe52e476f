"""Find estimators of a ratio that cover and are narrow, on recorded studies of equal configurations and simulations.

A candidate is a level of a round (median, mean, low quantile ...), a reduction over rounds, and an interval
over processes. Each column has the share of studies whose 95 % interval contains the truth, and the mean
margin of error.

`recorded` are the studies in the given folders (documents of `aa_ab_tests.py`, or any study with
repeats of a configuration): every two identical configurations of a study are a pair with ratio 1. Because they
are few, `redrawn` are many studies whose processes are drawn from all of those, with sides swapped at random.
The others are simulated (`_simulated.py`); `even` is an idle machine. A share has a standard error of 0.007
with 1,000 studies, and of 0.03 with 60. Takes less than a minute; with --all, which tries all combinations,
some minutes.

    python benchmarks/estimators.py [FOLDER ...] [--studies 1000] [--processes 5] [--rounds 5]
        [--steps 20] [--all]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _estimators import PRODUCT, Array, Candidate, candidates
from _simulated import SCENARIOS, TRUE_RATIO, simulate
from tabulate import tabulate

Pair = tuple[Array, Array]
"""Seconds of a baseline and of another configuration, each as (study, process, round, step)."""

_FEWEST_PROCESSES = 20
"""Minimum of recorded processes to draw from."""


class Source(NamedTuple):
    """Studies with a known ratio, grouped by numbers of processes, rounds and steps."""

    name: str
    truth: float
    groups: list[Pair]


class Score(NamedTuple):
    """Result of one candidate on one source."""

    coverage: float
    margin: float


def recorded(folders: list[Path]) -> list[Pair]:
    """Return pairs of identical configurations grouped by shape; skips studies with an injected difference."""
    groups = defaultdict(list)
    for path in sorted(path for folder in folders for path in folder.rglob("*.json")):
        document = json.loads(path.read_text())
        if "--inject-delay" in document.get("argv", []):
            continue
        configurations = defaultdict(list)
        for result in document.get("results", []):
            if result["status"] == "ok" and result["step_times"]:
                configurations[result["configuration"].partition("#")[0]].append(result["step_times"]["values"])
        for same in configurations.values():
            for one, two in itertools.combinations(same, 2):
                pair = _common(one, two)
                if pair.shape[1] > 1:
                    groups[pair.shape].append(pair)
    stacked = [np.stack(pairs, axis=1) for pairs in groups.values()]
    return [(both[0], both[1]) for both in stacked]


def _common(one: list[list[list[float]]], two: list[list[list[float]]]) -> Array:
    """Return (configuration, process, round, step), truncated to common rounds and steps."""
    processes = min(len(one), len(two))
    both = [configuration[:processes] for configuration in (one, two)]
    rounds = min(len(process) for configuration in both for process in configuration)
    steps = min(len(r) for configuration in both for process in configuration for r in process[:rounds])
    return np.array([[[r[:steps] for r in process[:rounds]] for process in configuration] for configuration in both])


def redraw(pair: Pair, studies: int, rng: np.random.Generator) -> Pair | None:
    """Draw studies from the processes of all studies; None if there are too few."""
    number, processes = pair[0].shape[:2]
    if number * processes < _FEWEST_PROCESSES:
        return None
    one, two = (configuration.reshape(number * processes, *configuration.shape[2:]) for configuration in pair)
    picks = rng.integers(number * processes, size=(studies, processes))
    swapped = rng.random((studies, processes, 1, 1)) < 0.5
    return np.where(swapped, two[picks], one[picks]), np.where(swapped, one[picks], two[picks])


def score(candidate: Candidate, source: Source, seed: int) -> Score:
    rng = np.random.default_rng(seed)
    hits, widths = [], []
    for baseline, other in source.groups:
        value, (low, high) = candidate.intervals(baseline, other, rng)
        hits.append((low <= source.truth) & (source.truth <= high))
        widths.append((high - low) / 2 / value)
    return Score(float(np.concatenate(hits).mean()), float(np.concatenate(widths).mean()))


def sources(options: argparse.Namespace) -> list[Source]:
    rng = np.random.default_rng(options.seed)
    found = []
    groups = recorded(options.folders)
    if groups:
        found.append(Source("recorded", 1.0, groups))
        drawn = [many for group in groups if (many := redraw(group, options.studies, rng))]
        if drawn:
            found.append(Source("redrawn", 1.0, drawn))
    shape = (options.studies, options.processes, options.rounds, options.steps)
    for name, machine in SCENARIOS.items():
        one, two = simulate(machine, shape, rng)
        found.append(Source(name, TRUE_RATIO, [(one, two)]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="folder of saved studies")
    parser.add_argument("--studies", type=int, default=1000, help="simulated and redrawn studies")
    parser.add_argument("--processes", type=int, default=5, help="processes of a simulated study")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="cross all levels with all intervals")
    options = parser.parse_args()
    given = sources(options)
    if options.folders and given[0].name != "recorded":
        sys.exit(f"no identical configurations in {', '.join(map(str, options.folders))}: see aa_ab_tests.py")
    rows, scores = [], []
    for candidate in candidates(options.all):
        of_each = {source.name: score(candidate, source, options.seed) for source in given}
        names = [candidate.level, candidate.over_rounds, candidate.interval, "yes" * candidate.logarithm]
        names[0] += " (now)" * (candidate == PRODUCT)
        rows.append([*names, *(f"{one.coverage:.3f} ±{one.margin:.1%}" for one in of_each.values())])
        scores.append({**candidate._asdict(), **{name: one._asdict() for name, one in of_each.items()}})
    titles = ["level of a round", "rounds", "interval", "log"]
    titles += [f"{source.name} ({sum(len(one) for one, _ in source.groups)})" for source in given]
    print(tabulate(rows, titles, tablefmt="pipe", disable_numparse=True))
    print(json.dumps({"benchmark": "estimators", "candidates": scores}), flush=True)


if __name__ == "__main__":
    main()
