"""Overhead of the whole harness: a worker as a study runs it, against the plain script, in fresh processes.

A pair is one worker and one plain script (what `--describe` prints), one after the other in random order,
with the same weights, batches, threads and heap, timing the same steps. The figure is the geometric mean over
pairs of the ratio of their median steps. Takes about 8 minutes on 2 quiet cores. Each pair's ratio is printed
to standard error as soon as it is known; Ctrl-C reports the pairs so far.

    python benchmarks/process_overhead.py [--pairs 20] [--steps 60] [--engines flux,torch,tf]
                                          [--model lenet] [--batch-size 128] [--heap keep]

The plain script of flux is Julia without Python; it needs the Julia packages Flux and NPZ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from typing import get_args

from _report import Figure, report
from _study import Inputs, inputs, measure, warm_worker

from polybench.core.spec import Cell, Heap
from polybench.core.statistics import ratio
from polybench.plain import NETWORKS, plain_command, plain_script
from polybench.wire.environment import heap_environment, inherited

TARGET = 1.02


def by_worker(given: Inputs, cell: Cell, steps: int) -> list[float]:
    """Seconds of the steps of one block in a fresh worker."""
    with warm_worker(given, cell) as worker:
        return measure(worker, steps)


def by_plain_script(given: Inputs, cell: Cell, steps: int) -> list[float]:
    """Seconds of the same steps in a fresh process that knows nothing of polybench."""
    text = plain_script(cell, given.plan.workload, steps)
    assert text is not None, f"{cell.name} has no plain script"
    script, command = plain_command(cell, given.plan.workload, given.scratch)
    script.write_text(text)
    environment = inherited(os.environ) | heap_environment(given.plan.study.heap)
    run = subprocess.run(
        [*command, str(given.start), str(given.data)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        sys.exit(f"the plain script of {cell.name} failed:\n{run.stderr}")
    seconds: list[float] = json.loads(run.stdout.splitlines()[-1])["step_seconds"]
    return seconds


RUNNERS = {"polybench": by_worker, "plain": by_plain_script}
Processes = dict[str, list[list[list[float]]]]
"""[process][round][sample], one round a process: so `ratio` gives the mean over processes."""


def race(given: Inputs, cell: Cell, pairs: int, steps: int) -> tuple[Processes, bool]:
    """Seconds of the steps of complete pairs, and whether that is all of them: Ctrl-C ends it early."""
    processes: Processes = {which: [] for which in RUNNERS}
    try:
        for pair in range(pairs):
            seconds = {
                which: RUNNERS[which](given, cell, steps) for which in random.sample(sorted(RUNNERS), 2)
            }
            for which, samples in seconds.items():
                processes[which].append([samples])
            medians = {which: statistics.median(samples) for which, samples in seconds.items()}
            print(
                f"{cell.name}: pair {pair + 1} of {pairs}: {medians['polybench'] * 1e3:.2f} ms / "
                f"{medians['plain'] * 1e3:.2f} ms = {medians['polybench'] / medians['plain']:.4f}",
                file=sys.stderr,
                flush=True,
            )
    except KeyboardInterrupt:
        return processes, False
    return processes, True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="torch,tf")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60, help="timed steps of a process")
    parser.add_argument("--model", choices=NETWORKS, default="lenet")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--heap", choices=get_args(Heap), default="keep")
    options = parser.parse_args()
    engines = tuple(options.engines.split(","))
    figures = []
    with inputs(engines, options.steps, options.model, options.batch_size, options.heap) as given:
        for cell in given.plan.cells:
            processes, complete = race(given, cell, options.pairs, options.steps)
            if pairs := len(processes["plain"]):
                found = ratio(processes["polybench"], processes["plain"])
                what = f"{cell.name}, {options.model}: polybench / plain script, {pairs} pairs"
                met = found.value <= TARGET
                figures.append(Figure(what, found.value, f"at most {TARGET}", met, found.interval95))
            if not complete:
                break
    report("process_overhead", figures, **vars(options))


if __name__ == "__main__":
    main()
