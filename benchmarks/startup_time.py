"""Measure how long users wait, and the parent's resources: time and memory outside of the timed part.

`polybench --help` against `python -c "import typer"`, alternating. Then `compare` on synthetic `lenet` with
torch and tf, once with default options and once with `--quick`. The former gives the timed part, the rest, and the
parent's anonymous memory with 50,000 images, a full CIFAR-10.

Takes about 3 minutes on 2 idle cores.

    python benchmarks/startup_time.py [--pairs 20] [--budget 60]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from _report import Figure, report

HELP_TARGET = 3.0
REST_TARGET = 90.0
QUICK_TARGET = 25.0
MEMORY_TARGET = 150.0
UNTIMED_STEPS = 2
SAMPLE_SECONDS = 0.2


def help_against_typer(pairs: int) -> float:
    """Return the ratio of median wall times."""
    program = str(Path(sys.executable).with_name("polybench"))
    commands = {"help": [program, "--help"], "typer": [sys.executable, "-c", "import typer"]}
    seconds: dict[str, list[float]] = {which: [] for which in commands}
    for command in commands.values():
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # file caches and bytecode
    for _ in range(pairs):
        for which, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[which].append(time.perf_counter() - start)
    return statistics.median(seconds["help"]) / statistics.median(seconds["typer"])


class Compared(NamedTuple):
    """Run `compare`: total seconds, timed seconds, and the parent's peak memory in MiB."""

    wall: float
    timed: float
    peak_mib: float


def compare(*options: str) -> Compared:
    """Run it and observe the parent from outside."""
    command = [sys.executable, "-m", "polybench", "compare", "--engines", "torch,tf", "--devices", "cpu"]
    command += ["--data", "synthetic", "--no-save", "--quiet", "--format", "json", *options]
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=output) as parent:
            peak = 0.0
            while parent.poll() is None:
                peak = max(peak, anonymous_mib(parent.pid))
                time.sleep(SAMPLE_SECONDS)
        wall = time.perf_counter() - start
        if parent.returncode:
            sys.exit(f"{' '.join(command)} ended with {parent.returncode}")
        output.seek(0)
        return Compared(wall, timed_seconds(json.load(output)), peak)


def anonymous_mib(pid: int) -> float:
    """Return anonymous resident memory; 0 after the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    kilobytes = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(kilobytes[1]) / 1024 if kilobytes else 0.0


def timed_seconds(document: dict[str, Any]) -> float:
    """Return seconds of all timing blocks, including untimed steps."""
    return sum(
        float(sum(block)) * (1 + UNTIMED_STEPS / len(block))
        for result in document["results"]
        for process in result["step_times"]["values"]
        for block in process
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--budget", type=float, default=60.0, help="of compare, in seconds; its default is 60")
    options = parser.parse_args()
    slower = help_against_typer(options.pairs)
    whole = compare("--budget", f"{options.budget}s")
    quick = compare("--quick")
    rest = whole.wall - whole.timed
    figures = [
        Figure("polybench --help / import typer", slower, f"at most {HELP_TARGET:g}", slower <= HELP_TARGET),
        Figure(
            "compare: timed part, s", whole.timed, f"at most {options.budget:g}",
            whole.timed <= options.budget,
        ),
        Figure("compare: the rest, s", rest, f"below {REST_TARGET:g}", rest < REST_TARGET),
        Figure("compare --quick: all, s", quick.wall, f"below {QUICK_TARGET:g}", quick.wall < QUICK_TARGET),
        Figure(
            "parent's anonymous memory, MiB", whole.peak_mib, f"below {MEMORY_TARGET:g}",
            whole.peak_mib < MEMORY_TARGET,
        ),
    ]  # fmt: skip
    report("start", figures, pairs=options.pairs, budget=options.budget)


if __name__ == "__main__":
    main()
