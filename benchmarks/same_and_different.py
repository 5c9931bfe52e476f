"""How often identical cells are called equal, and different ones different: many whole studies of torch.

`same`: two identical cells; a study whose interval excludes 1 calls a difference that is not there.
`different`: the second cell waits 5 % of its median step longer (a hidden option); counted among the studies
whose half width reached 2 %, how many found it. Studies are `polybench compare` with its defaults, but for
a small budget, and without the identity check, which has no influence on the measuring. `different` also
asks for `--target 2%`.

Each study is appended to --output at once; --resume goes on with what is there. A study takes its budget and
about 25 seconds more, so 2 x 60 studies take more than an hour.

    python benchmarks/same_and_different.py [--studies 60] [--budget 10s] [--processes 5]
        [--kind same|different|both] [--output FILE] [--resume]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _report import Figure, report

CELL = "torch/cpu#2"
KINDS: dict[str, list[str]] = {"same": [], "different": ["--handicap", f"{CELL}=0.05", "--target", "2%"]}
HALF_WIDTH = 0.02
MOST_FALSE = 0.1
FEWEST_FOUND = 0.9

Row = dict[str, Any]


def study(kind: str, seed: int, options: argparse.Namespace) -> Row:
    """Run one study with an order of rounds of its own; its ratio, and its settings."""
    command = [sys.executable, "-m", "polybench", "compare", "--engines", "torch,torch", "--devices", "cpu"]
    command += ["--data", options.data, "--budget", options.budget, "--processes", str(options.processes)]
    command += ["--seed", str(seed), *(["--threads", str(options.threads)] if options.threads else [])]
    command += ["--no-parity", "--no-save", "--quiet", "--format", "json", *KINDS[kind]]
    start = time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)}\nended with {run.returncode}:\n{run.stderr}")
    document = json.loads(run.stdout)
    relative = next(result["relative"] for result in document["results"] if result["cell"] == CELL)
    low, high = relative["interval95"]
    return {
        **key(kind, options),
        "speedup": relative["speedup"],
        "interval95": [low, high],
        "half_width": (high - low) / 2 / relative["speedup"],
        "differs": not low <= 1 <= high,
        "disturbed_rounds": sum(noise["affected"] for noise in document["host"]["noise"]),
        "rounds": len(document["host"]["noise"]),
        "seconds": time.perf_counter() - start,
    }


def key(kind: str, options: argparse.Namespace) -> Row:
    """The settings that studies counted together share."""
    return {
        "kind": kind,
        "budget": options.budget,
        "processes": options.processes,
        "threads": options.threads,
        "data": options.data,
    }


def run_all(kind: str, options: argparse.Namespace) -> list[Row]:
    """The studies that the file has already, and those that are missing."""
    wanted = key(kind, options)
    rows = [row for row in read(options.output) if wanted.items() <= row.items()]
    while len(rows) < options.studies:
        rows.append(study(kind, len(rows), options))
        with options.output.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        last = rows[-1]
        print(
            f"{kind} {len(rows)} of {options.studies}: {last['speedup']:.4f}"
            f" ({last['interval95'][0]:.4f} to {last['interval95'][1]:.4f}){' differs' * last['differs']}",
            file=sys.stderr,
        )
    return rows[: options.studies]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def figures(kind: str, rows: list[Row]) -> list[Figure]:
    """How often a difference was called."""
    if kind == "same":
        called, allowed = sum(row["differs"] for row in rows), int(MOST_FALSE * len(rows))
        what = f"identical cells called different, of {len(rows)} studies"
        return [Figure(what, called, f"at most {allowed}", called <= allowed)]
    sharp = [row for row in rows if row["half_width"] <= HALF_WIDTH]
    reached = f"studies of {len(rows)} whose half width reached {HALF_WIDTH:.0%}"
    if not sharp:
        return [Figure(reached, 0)]
    # Found means found as what it is: the cell that waits is the slower one.
    found = sum(row["differs"] and row["speedup"] < 1 for row in sharp) / len(sharp)
    what = "5 % more time found, share of those"
    return [
        Figure(reached, len(sharp)),
        Figure(what, found, f"at least {FEWEST_FOUND}", found >= FEWEST_FOUND),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=60, help="of each kind")
    parser.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    parser.add_argument("--budget", default="10s")
    parser.add_argument("--processes", type=int, default=5, help="more of them narrow the intervals")
    parser.add_argument("--threads", type=int, help="one thread varies least from process to process")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--output", type=Path, default=Path("same_and_different.jsonl"))
    parser.add_argument("--resume", action="store_true", help="go on with what --output has")
    options = parser.parse_args()
    if options.output.exists() and not options.resume:
        sys.exit(f"{options.output} exists: --resume goes on with it, or name another --output")
    kinds = list(KINDS) if options.kind == "both" else [options.kind]
    found = [figure for kind in kinds for figure in figures(kind, run_all(kind, options))]
    report(
        "same_and_different", found, studies=options.studies, budget=options.budget,
        processes=options.processes,
    )  # fmt: skip


if __name__ == "__main__":
    main()
