"""Idle means idle: what workers that are not being measured cost, in CPU time and to the one that is.

First rounds of torch, torch and tf as a study has them: the CPU time of each worker while another one is
measured. Then one torch worker's steps with idle workers of torch and tf beside it and without, alternating;
the idle ones are started anew for each pair, so that "without" has no trace of them.

Takes about 5 minutes on 2 quiet cores.

    python benchmarks/idle_workers.py [--rounds 20] [--pairs 20] [--steps 30]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from _report import Figure, report
from _study import Inputs, inputs, measure, warm_worker

from polybench.core.statistics import ratio
from polybench.machine.meters.cpu import cpu_seconds
from polybench.wire.process import WorkerProcess

TARGET = 0.01
IDLE = ("torch", "tf")


def idle_share(given: Inputs, rounds: int, steps: int) -> float:
    """CPU time of all workers while they are not measured, as a fraction of the rounds' time."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(warm_worker(given, given.cell(name))) for name in ("torch", *IDLE)]
        idle, start = 0.0, time.perf_counter()
        for _ in range(rounds):
            for worker in workers:
                others = [other.pid for other in workers if other is not worker]
                before = sum(map(cpu_seconds, others))
                measure(worker, steps)
                idle += sum(map(cpu_seconds, others)) - before
        return idle / (time.perf_counter() - start)


def beside_and_alone(given: Inputs, pairs: int, steps: int) -> tuple[list[list[float]], list[list[float]]]:
    """Blocks of one torch worker, with idle workers and without."""
    beside: list[list[float]] = []
    alone: list[list[float]] = []
    with warm_worker(given, given.cell("torch")) as worker:
        for pair in range(pairs):
            if pair % 2:  # which comes first alternates, so that a drift favours neither
                alone.append(settled(worker, steps))
            with contextlib.ExitStack() as stack:
                for name in IDLE:
                    stack.enter_context(warm_worker(given, given.cell(name)))
                beside.append(settled(worker, steps))
            if not pair % 2:
                alone.append(settled(worker, steps))
            print(f"pair {pair + 1} of {pairs}", file=sys.stderr)
    return beside, alone


def settled(worker: WorkerProcess, steps: int) -> list[float]:
    """A block after a discarded one: starting and ending others leaves caches cold."""
    measure(worker, steps)
    return measure(worker, steps)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30, help="timed steps of a block")
    options = parser.parse_args()
    with inputs(IDLE, options.steps) as given:
        share = idle_share(given, options.rounds, options.steps)
        beside, alone = beside_and_alone(given, options.pairs, options.steps)
    found = ratio([beside], [alone])
    low, high = found.interval95 or (0.0, 0.0)
    figures = [
        Figure("CPU time of idle workers / time of the rounds", share, f"below {TARGET}", share < TARGET),
        Figure(
            "torch's step beside idle workers / alone", found.value, "interval contains 1", low <= 1 <= high,
            found.interval95,
        ),
    ]  # fmt: skip
    report("idle_workers", figures, rounds=options.rounds, pairs=options.pairs, steps=options.steps)


if __name__ == "__main__":
    main()
