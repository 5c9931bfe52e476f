"""Compare a study through a node program (`--on local`) with a plain study: step times and total duration.

Pairs of studies with one configuration twice, one plain, one `--on local`, in alternating order. The interval of the
ratio of their step times, pair by pair, must contain 1. The additional duration of a machine group, from the command
to its end, must be below 2 s.

    python benchmarks/cluster_overhead.py [--engine torch] [--pairs 5]
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import Figure, report
from scipy import stats

from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

_MOST_SECONDS = 2.0


def measured(engine: str, folder: Path, *more: str) -> tuple[StudyDocument, float]:
    """Run one study; return its document and the duration of the command."""
    results = folder / f"results-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "polybench", "compare", "--engines", engine, "--devices", "cpu"]
    command += ["--data", "synthetic", "--batch-size", "32", "--processes", "2", "--rounds-per-process", "5"]
    command += ["--steps-per-round", "20", "--no-parity", "--no-metrics", "--quiet", "--results", str(results), *more]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - began
    return Store(results).load("last"), seconds


def interval(values: list[float]) -> tuple[float, float]:
    """Student's t interval of the mean, 95 %."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    ratios, longer = [], []
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name:
        folder = Path(name)
        measured(options.engine, folder)  # later runs find the files in the cache
        for number in range(options.pairs):
            ways = [(), ("--on", "local")]
            found = {way: measured(options.engine, folder, *way) for way in ways[:: 1 if number % 2 else -1]}
            (plain, plain_seconds), (local, local_seconds) = found[()], found["--on", "local"]
            steps = [one.results[0].step_seconds for one in (local, plain)]
            ratios.append(math.log(steps[0] / steps[1]))
            longer.append(local_seconds - plain_seconds)
            print(f"pair {number + 1}: {steps[0] / steps[1]:.4f}, {longer[-1]:+.2f} s", file=sys.stderr)
    low, high = (math.exp(end) for end in interval(ratios))
    extra = statistics.median(longer)
    report(
        "cluster_overhead",
        [
            Figure(
                "step time, --on local / plain",
                math.exp(statistics.fmean(ratios)),
                "interval contains 1",
                low <= 1 <= high,
                (low, high),
            ),
            Figure("seconds longer a group", extra, f"below {_MOST_SECONDS:g}", extra < _MOST_SECONDS),
        ],
        engine=options.engine,
        pairs=options.pairs,
    )


if __name__ == "__main__":
    main()
