"""Measure the cost of idle workers: their CPU time, and their effect on the worker that is measured.

First, rounds of torch, torch and tf as in a study: the CPU time of each worker while another one is
measured. Then one torch worker's steps with and without idle workers of torch and tf, alternating;
the idle workers are started again for each pair, so that nothing of them is left.

Takes about 5 minutes on 2 idle cores.

    python benchmarks/idle_workers.py [--rounds 20] [--pairs 20] [--steps 30]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from _report import Figure, report
from _study import Inputs, inputs, measure, warm_worker

from polybench.machine.process_counters import cpu_seconds
from polybench.protocol.process import WorkerProcess
from polybench.stats.statistics import ratio

TARGET = 0.01
IDLE = ("torch", "tf")


def idle_share(given: Inputs, rounds: int, steps: int) -> float:
    """Return the CPU time of all idle workers as a fraction of the rounds' time."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(warm_worker(given, given.configuration(name))) for name in ("torch", *IDLE)]
        idle, start = 0.0, time.perf_counter()
        for _ in range(rounds):
            for worker in workers:
                others = [other.pid for other in workers if other is not worker]
                before = sum(map(cpu_seconds, others))
                measure(worker, steps)
                idle += sum(map(cpu_seconds, others)) - before
        return idle / (time.perf_counter() - start)


def beside_and_alone(given: Inputs, pairs: int, steps: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return blocks of one torch worker with and without idle workers."""
    beside: list[list[float]] = []
    alone: list[list[float]] = []
    with warm_worker(given, given.configuration("torch")) as worker:
        for pair in range(pairs):
            if pair % 2:  # alternate the order, so that drift favours neither
                alone.append(settled(worker, steps))
            with contextlib.ExitStack() as stack:
                for name in IDLE:
                    stack.enter_context(warm_worker(given, given.configuration(name)))
                beside.append(settled(worker, steps))
            if not pair % 2:
                alone.append(settled(worker, steps))
            print(f"pair {pair + 1} of {pairs}", file=sys.stderr)
    return beside, alone


def settled(worker: WorkerProcess, steps: int) -> list[float]:
    """Run a block after a discarded one, because starting and ending workers leaves cold caches."""
    measure(worker, steps)
    return measure(worker, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30, help="timed steps of a block")
    options = parser.parse_args()
    with inputs(IDLE, options.steps) as given:
        share = idle_share(given, options.rounds, options.steps)
        beside, alone = beside_and_alone(given, options.pairs, options.steps)
    found = ratio([beside], [alone])
    low, high = found.ci95 or (0.0, 0.0)
    figures = [
        Figure("CPU time of idle workers / time of the rounds", share, f"below {TARGET}", share < TARGET),
        Figure(
            "torch's step beside idle workers / alone", found.speedup, "interval contains 1", low <= 1 <= high,
            found.ci95,
        ),
    ]  # fmt: skip
    report("idle_workers", figures, rounds=options.rounds, pairs=options.pairs, steps=options.steps)


if __name__ == "__main__":
    main()
