"""Measure the effect of meters and counters on step times: workers with metrics against workers without.

A pair is two fresh workers of the same configuration, one after the other in random order, with the same steps.
One is observed as in a study (`metrics`, the default): the observer reads before and after its blocks, and
memory and allocations are counted afterwards. The other is only timed. The figure is the geometric mean over
pairs of the ratio of their median steps. Takes some 15 minutes on 2 idle cores, most of it for flux.

    python benchmarks/counting_overhead.py [--pairs 20] [--blocks 3] [--steps 30] [--engines flux,torch,tf]
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys

from _report import Figure, report
from _study import TIMEOUT, Inputs, inputs, measure, warm_worker

from polybench.machine.meters.observer import Observer
from polybench.protocol import calls
from polybench.schema.options import Configuration
from polybench.stats.statistics import ratio

TARGET = 1.02
_COUNTED_STEPS = 5


def one_process(
    given: Inputs, configuration: Configuration, observer: Observer | None, blocks: int, steps: int
) -> list[list[float]]:
    """Seconds of the steps of each block of a fresh worker."""
    with warm_worker(given, configuration) as worker:
        seconds = []
        for _ in range(blocks):
            watched = (
                observer.watch_block(worker.pid, configuration.device, []) if observer else contextlib.nullcontext()
            )
            with watched:
                seconds.append(measure(worker, steps))
        if observer:
            worker.request(calls.count_allocations(_COUNTED_STEPS), TIMEOUT)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="flux,torch,tf")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=3, help="blocks of a process")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of a block")
    options = parser.parse_args()
    observers = {"metrics": Observer({"cpu"}), "none": None}
    figures = []
    with inputs(tuple(options.engines.split(",")), options.steps) as given:
        for configuration in given.plan.configurations:
            processes: dict[str, list[list[list[float]]]] = {which: [] for which in observers}
            for pair in range(options.pairs):
                for which in random.sample(sorted(observers), 2):
                    seconds = one_process(given, configuration, observers[which], options.blocks, options.steps)
                    processes[which].append(seconds)
                print(f"{configuration.name}: pair {pair + 1} of {options.pairs}", file=sys.stderr)
            found = ratio(processes["metrics"], processes["none"])
            what = f"{configuration.name}: with all metrics / with none"
            met = found.speedup <= TARGET
            figures.append(Figure(what, found.speedup, f"at most {TARGET}", met, found.ci95))
    report("counting", figures, pairs=options.pairs, blocks=options.blocks, steps=options.steps)


if __name__ == "__main__":
    main()
