"""How often identical cells are called equal, and different ones different: many whole studies of one engine.

`same`: two identical cells; a study whose interval excludes 1 calls a difference that is not there.
`different`: the second cell waits longer by `--planted` of its median step (a hidden option of `compare`);
counted among the studies whose half width reached `--target`, how many found it. Studies are `polybench
compare` without the identity check, which has no influence on the measuring; what follows `--` is for it,
too.

Each study's document, with all its samples, is kept in the folder as soon as it is there, so that it takes
any number of calls: `--resume` goes on with what is there, `--part` ends a call after so many new studies,
and two calls may each measure one kind. A study takes its budget, and 10 to 30 seconds to start its
processes.

    python benchmarks/same_and_different.py FOLDER [--studies 60] [--kind same|different|both] [--part 10]
        [--resume] [--engine torch] [--threads 1] [--budget 10s] [--processes 5] [--planted 0.1] [--target 5%]
        [-- --pin --patience 5s]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from _report import Figure, report

from polybench.commands.texts import parse_fraction

KINDS = ("same", "different")
MOST_FALSE = 0.1
FEWEST_FOUND = 0.9


class Outcome(NamedTuple):
    """What one study says of its second cell against its first."""

    speedup: float
    low: float
    high: float

    @classmethod
    def of(cls, document: dict[str, Any]) -> Outcome:
        """Of a study of two cells, in several processes."""
        relative = document["results"][1]["relative"]
        return cls(relative["speedup"], *relative["interval95"])

    @property
    def half_width(self) -> float:
        """Over the ratio."""
        return (self.high - self.low) / 2 / self.speedup

    @property
    def differs(self) -> bool:
        """Whether the study calls its cells different."""
        return not self.low <= 1 <= self.high


def arguments(kind: str, number: int, options: argparse.Namespace) -> list[str]:
    """Of polybench; the study's number is its seed, so that each has an order of rounds of its own."""
    given = ["compare", "--engines", f"{options.engine},{options.engine}", "--devices", "cpu"]
    given += ["--data", options.data, "--budget", options.budget, "--processes", str(options.processes)]
    given += ["--threads", str(options.threads), "--target", options.target, "--seed", str(number)]
    given += ["--no-parity", "--no-save", "--quiet", "--format", "json"]
    if kind == "different":
        given += ["--handicap", f"{options.engine}/cpu#2={options.planted}"]
    return [*given, *options.more]


def study(path: Path, given: list[str]) -> Outcome:
    """The study that the file has, or else a new one, which the file then has."""
    if not path.exists():
        run = subprocess.run(
            [sys.executable, "-m", "polybench", *given], capture_output=True, text=True, check=False
        )
        if run.returncode:
            sys.exit(f"polybench {' '.join(given)}\nended with {run.returncode}:\n{run.stderr}")
        unfinished = path.with_suffix(".part")
        unfinished.write_text(run.stdout)
        unfinished.rename(path)
    document = json.loads(path.read_text())
    if document["argv"] != given:
        sys.exit(f"{path} has another study:\n{' '.join(document['argv'])}\nwanted:\n{' '.join(given)}")
    return Outcome.of(document)


def run_all(kinds: tuple[str, ...], options: argparse.Namespace) -> dict[str, list[Outcome]]:
    """Kinds take turns, so that a part has as many of each."""
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
    left = options.part
    for number in range(options.studies):
        for kind in kinds:
            path = options.folder / f"{kind}-{number:03}.json"
            new = not path.exists()
            if new and left == 0:
                continue
            one = study(path, arguments(kind, number, options))
            outcomes[kind].append(one)
            if new:
                left -= 1
                says = " differs" if one.differs else ""
                what = f"{kind} {number + 1} of {options.studies}"
                print(f"{what}: {one.speedup:.4f} ({one.low:.4f} to {one.high:.4f}){says}", file=sys.stderr)
    return outcomes


def figures(kind: str, outcomes: list[Outcome], target: float, planted: float) -> list[Figure]:
    """How often a difference was called, and how narrow the intervals were."""
    number = len(outcomes)
    if not number:
        return [Figure(f"{kind}: studies", 0)]
    widths = [one.half_width for one in outcomes]
    reached = [one for one in outcomes if one.half_width <= target]
    found = [
        Figure(f"{kind}: studies", number),
        Figure(f"{kind}: half width, median", statistics.median(widths)),
        Figure(f"{kind}: half width, largest", max(widths)),
        Figure(f"{kind}: half width at most {target:.0%}", len(reached)),
    ]
    if kind == "same":
        called, allowed = sum(one.differs for one in outcomes), int(MOST_FALSE * number)
        found.append(Figure("same: called different", called, f"at most {allowed}", called <= allowed))
    elif reached:
        # Found means found as what it is: the cell that waits is the slower one.
        share = sum(one.differs and one.speedup < 1 for one in reached) / len(reached)
        what = f"different: {planted:.0%} found, share of those that reached {target:.0%}"
        found.append(Figure(what, share, f"at least {FEWEST_FOUND}", share >= FEWEST_FOUND))
    return found


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """What is before `--`, and what is behind it."""
    here = words.index("--") if "--" in words else len(words)
    return words[:here], words[here + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="keeps the studies")
    parser.add_argument("--studies", type=int, default=60, help="of each kind")
    parser.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    parser.add_argument("--part", type=int, default=-1, help="new studies in this call (default: all)")
    parser.add_argument("--resume", action="store_true", help="go on with what the folder has")
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", default="10s")
    parser.add_argument("--processes", type=int, default=5, help="2 or more")
    parser.add_argument("--planted", type=float, default=0.1)
    parser.add_argument("--target", default="5%")
    parser.add_argument("--data", default="synthetic")
    ours, theirs = _split(sys.argv[1:])
    options = parser.parse_args(ours, argparse.Namespace(more=theirs))
    if options.processes < 2:
        parser.error("--processes 1 has no verdict; give 2 or more")
    kinds = KINDS if options.kind == "both" else (options.kind,)
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.resume and any(list(options.folder.glob(f"{kind}-*.json")) for kind in kinds):
        sys.exit(f"{options.folder} has studies: --resume goes on with them, or name another folder")
    target = parse_fraction(options.target)
    outcomes = run_all(kinds, options)
    found = [one for kind in kinds for one in figures(kind, outcomes[kind], target, options.planted)]
    settings = {name: value for name, value in vars(options).items() if name != "folder"}
    report("same_and_different", found, **settings)


if __name__ == "__main__":
    main()
