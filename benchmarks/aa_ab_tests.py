"""Measure how often equal configurations are called equal, and different ones different, in many studies of one engine.

`same` has two identical configurations; a study whose interval excludes 1 finds a false difference. `different` delays
the second configuration by `--injected-delay` of its median step (a hidden option of `compare`). It counts how many
studies whose margin of error reached `--margin` found the difference. Studies are `polybench compare` without the
parity check, which does not affect measurements; options after `--` are passed to it.

Each study's document, with all its step times, is saved in the folder at once, so the benchmark can be split into
several calls: `--resume` continues, `--part` ends a call after some new studies, and two calls can each
measure one kind. A study takes its budget, and 10 to 30 seconds to start its processes.

    python benchmarks/aa_ab_tests.py FOLDER [--studies 60] [--kind same|different|both] [--part 10]
        [--resume] [--engine torch] [--threads 1] [--budget 10s] [--processes 5] [--injected-delay 0.1] [--margin 5%]
        [-- --pin-cpus --wait-idle 5s]
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

from polybench.cli.options import parse_fraction

KINDS = ("same", "different")
MOST_FALSE = 0.1
FEWEST_FOUND = 0.9


class Outcome(NamedTuple):
    """Comparison of the second configuration with the first in one study."""

    speedup: float
    low: float
    high: float

    @classmethod
    def of(cls, document: dict[str, Any]) -> Outcome:
        """Read the comparison of a study of two configurations in several processes."""
        comparison = document["results"][1]["vs_baseline"]
        return cls(comparison["speedup"], *comparison["ci95"])

    @property
    def margin(self) -> float:
        """Half of the interval's width, divided by the ratio."""
        return (self.high - self.low) / 2 / self.speedup

    @property
    def differs(self) -> bool:
        """True if the study calls its configurations different."""
        return not self.low <= 1 <= self.high


def arguments(kind: str, number: int, options: argparse.Namespace) -> list[str]:
    """Run polybench; the study's number is its seed, so each study has its own order of rounds."""
    given = ["compare", "--engines", f"{options.engine},{options.engine}", "--devices", "cpu"]
    given += ["--data", options.data, "--budget", options.budget, "--processes", str(options.processes)]
    given += ["--threads", str(options.threads), "--margin", options.margin, "--seed", str(number)]
    given += ["--no-parity", "--no-save", "--quiet", "--format", "json"]
    if kind == "different":
        given += ["--inject-delay", f"{options.engine}/cpu#2={options.injected_delay}"]
    return [*given, *options.more]


def study(path: Path, given: list[str]) -> Outcome:
    """Return the study in the file, or run a new one and save it there."""
    if not path.exists():
        run = subprocess.run([sys.executable, "-m", "polybench", *given], capture_output=True, text=True, check=False)
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
    """Alternate kinds, so that a part has equally many of each."""
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


def figures(kind: str, outcomes: list[Outcome], margin: float, injected: float) -> list[Figure]:
    """Summarize how often a difference was found, and the margins of error."""
    number = len(outcomes)
    if not number:
        return [Figure(f"{kind}: studies", 0)]
    widths = [one.margin for one in outcomes]
    reached = [one for one in outcomes if one.margin <= margin]
    found = [
        Figure(f"{kind}: studies", number),
        Figure(f"{kind}: half width, median", statistics.median(widths)),
        Figure(f"{kind}: half width, largest", max(widths)),
        Figure(f"{kind}: margin of error at most {margin:.0%}", len(reached)),
    ]
    if kind == "same":
        called, allowed = sum(one.differs for one in outcomes), int(MOST_FALSE * number)
        found.append(Figure("same: called different", called, f"at most {allowed}", called <= allowed))
    elif reached:
        # found with the right sign: the delayed configuration is slower
        share = sum(one.differs and one.speedup < 1 for one in reached) / len(reached)
        what = f"different: {injected:.0%} found, share of those that reached {margin:.0%}"
        found.append(Figure(what, share, f"at least {FEWEST_FOUND}", share >= FEWEST_FOUND))
    return found


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at `--`."""
    here = words.index("--") if "--" in words else len(words)
    return words[:here], words[here + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the studies")
    parser.add_argument("--studies", type=int, default=60, help="of each kind")
    parser.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    parser.add_argument("--part", type=int, default=-1, help="new studies in this call (default: all)")
    parser.add_argument("--resume", action="store_true", help="continue with the studies in the folder")
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", default="10s")
    parser.add_argument("--processes", type=int, default=5, help="2 or more")
    parser.add_argument("--injected-delay", type=float, default=0.1)
    parser.add_argument("--margin", default="5%")
    parser.add_argument("--data", default="synthetic")
    ours, theirs = _split(sys.argv[1:])
    options = parser.parse_args(ours, argparse.Namespace(more=theirs))
    if options.processes < 2:
        parser.error("one process is inconclusive; give --processes 2 or more")
    kinds = KINDS if options.kind == "both" else (options.kind,)
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.resume and any(list(options.folder.glob(f"{kind}-*.json")) for kind in kinds):
        sys.exit(f"{options.folder} already has studies: use --resume or another folder")
    margin = parse_fraction(options.margin)
    outcomes = run_all(kinds, options)
    found = [one for kind in kinds for one in figures(kind, outcomes[kind], margin, options.injected_delay)]
    settings = {name: value for name, value in vars(options).items() if name != "folder"}
    report("aa_ab_tests", found, **settings)


if __name__ == "__main__":
    main()
