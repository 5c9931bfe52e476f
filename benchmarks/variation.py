"""Where the variation of a step's time comes from: one suspect is fixed at a time; how much is left?

A process is a worker as a study starts it, with one suspect fixed (`_suspects.py`), the engines' workers
side by side; it is measured in rounds, its engines one after the other in random order. Suspects take
turns, process by process in random order, so that a drift of the machine hits all. Printed are, for each
engine and suspect, the median step and the standard deviations between processes (with the interval that so
few of them leave), between the rounds of a process and within a round (nested random effects on
logarithms); beside them page faults, seconds that threads waited for a core, and the memory in huge pages,
which show whether a suspect was really fixed.

How fast a core counts is read before and after each process: it is the frequency as far as a virtual
machine tells. With 2 cores, torch and tf, a process of every suspect takes about 100 seconds, so this takes
about 8 minutes. Denormal numbers are counted by `denormals.py`: no variable makes the engines flush them to
zero.

    python benchmarks/variation.py [--engines torch,tf] [--suspects nothing,huge_pages,...] [--processes 5]
        [--rounds 4] [--steps 20] [--threads 2] [--model lenet] [--batch-size 128] [--output FILE]

With --output, processes are kept in the file as JSON lines: one that was stopped goes on, and --processes
10 adds 5 to a file that has 5.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
from _components import Components, components
from _kept import Kept, Row
from _study import Inputs, inputs, measure, warm_workers, watched
from _suspects import SUSPECTS, Suspect, fixed
from tabulate import tabulate

from polybench.core.errors import Unavailable
from polybench.core.spec import UNTIMED_STEPS, Cell
from polybench.core.statistics import step_seconds
from polybench.machine import host

_COUNT = 400_000
"""Turns of an empty loop, about 10 ms."""


def one_process(
    given: Inputs, suspect: Suspect, cells: list[Cell], rounds: int, steps: int
) -> dict[str, Row]:
    """What a fresh worker of each cell showed, by engine."""
    seen: dict[str, Row] = {
        cell.engine: {"samples": [], "page_faults": [], "run_delay": []} for cell in cells
    }
    threads = suspect.threads or given.plan.workload.threads
    workload = msgspec.structs.replace(given.plan.workload, threads=threads)
    given = given._replace(plan=given.plan._replace(workload=workload))
    with (
        fixed(suspect, threads) as environment,
        warm_workers(given, cells, environment) as workers,
    ):
        for _ in range(rounds):
            for cell in random.sample(cells, len(cells)):
                worker, row = workers[cell], seen[cell.engine]
                seconds, use = watched(worker.pid, functools.partial(measure, worker, steps))
                row["samples"].append(seconds)
                row["page_faults"].append(use.minor_faults / (UNTIMED_STEPS + steps))
                row["run_delay"].append((use.run_delay_seconds or 0.0) / (UNTIMED_STEPS + steps))
        for cell in cells:
            seen[cell.engine]["huge_bytes"] = huge_bytes(workers[cell].pid)
    return seen


def huge_bytes(pid: int) -> int:
    """Memory of a process in transparent huge pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages:"))


def counting_seconds() -> float:
    """How long a core takes to count; the fastest of three, since the first may be elsewhere."""

    def count() -> float:
        start = time.perf_counter()
        for _ in range(_COUNT):
            pass
        return time.perf_counter() - start

    return min(count() for _ in range(3))


def measure_all(kept: Kept, names: list[str], options: argparse.Namespace) -> None:
    """Every suspect in turn, until each has as many processes as wanted; Ctrl-C leaves it at those so far."""
    engines = tuple(options.engines.split(","))
    with inputs(engines, options.steps, options.model, options.batch_size, threads=options.threads) as given:
        for number in range(options.processes):
            for name in random.sample(names, len(names)):
                suspect = SUSPECTS[name]
                wanted = [engine for engine in engines if not suspect.only or engine in suspect.only]
                missing = [
                    engine
                    for engine in wanted
                    if not kept.matching(suspect=name, engine=engine, number=number)
                ]
                if not missing:
                    continue
                cells = [given.cell(engine) for engine in missing]
                before = counting_seconds()
                try:
                    seen = one_process(given, suspect, cells, options.rounds, options.steps)
                except Unavailable as error:
                    print(f"{name}, {', '.join(missing)}: {error}", file=sys.stderr)
                    continue
                counts = [before, counting_seconds()]
                for engine, row in seen.items():
                    kept.add(suspect=name, engine=engine, number=number, counting_seconds=counts, **row)
                print(f"process {number + 1} of {options.processes}: {name}", file=sys.stderr, flush=True)


def table_row(engine: str, suspect: str, rows: list[Row]) -> tuple[list[str], Components]:
    """What the processes of one suspect say of one engine."""
    samples = [row["samples"] for row in rows]
    parts = components(np.log(np.array(samples)))
    low, high = parts.processes_interval
    delay = statistics.median(delay for row in rows for delay in row["run_delay"])
    faults = [fault for row in rows for fault in row["page_faults"]]
    texts = [
        engine,
        SUSPECTS[suspect].says,
        str(len(rows)),
        f"{step_seconds(samples, 'step').median * 1e3:.2f}",
        f"{parts.processes:.1%} ({low:.1%} to {high:.1%})",
        f"{parts.rounds:.1%}",
        f"{parts.samples:.1%}",
        f"{min(faults):,.0f} to {max(faults):,.0f}",
        f"{delay * 1e3:.2f}",
        f"{statistics.median(row['huge_bytes'] for row in rows) / 2**20:,.0f}",
    ]
    return texts, parts


def counting(rows: list[Row]) -> str:
    """How even the machine itself was."""
    pairs = np.log([row["counting_seconds"] for row in rows])
    change = float(np.abs(pairs[:, 1] - pairs[:, 0]).max())
    return (
        f"An empty loop took {float(np.exp(np.median(pairs))) * 1e3:.2f} ms, with a standard deviation of"
        f" {float(pairs.std(ddof=1)):.1%}; from before to after a process it changed by at most {change:.1%}."
    )


_TITLES = [
    "engine",
    "fixed",
    "processes",
    "step, ms",
    "between processes",
    "between rounds",
    "within rounds",
    "page faults a step",
    "waited, ms a step",
    "huge pages, MiB",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="torch,tf")
    parser.add_argument("--suspects", default=",".join(SUSPECTS), help="default: all, %(default)s")
    parser.add_argument("--processes", type=int, default=5, help="of each suspect, 2 or more")
    parser.add_argument("--rounds", type=int, default=4, help="of each process, 2 or more")
    parser.add_argument("--steps", type=int, default=20, help="timed in a round")
    parser.add_argument("--threads", type=int, default=host.usable_threads())
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = options.suspects.split(",")
    if unknown := set(names) - set(SUSPECTS):
        parser.error(f"no such suspect: {', '.join(sorted(unknown))}; there are {', '.join(SUSPECTS)}")
    if min(options.processes, options.rounds, options.steps) < 2:
        parser.error("variation needs 2 processes, rounds and steps at least")
    settings = ("rounds", "steps", "threads", "model", "batch_size")
    kept = Kept(options.output, **{name: getattr(options, name) for name in settings})
    try:
        measure_all(kept, names, options)
    except KeyboardInterrupt:
        print("stopped: what there is so far", file=sys.stderr)
    table, parts, used = [], [], []
    for engine in options.engines.split(","):
        for name in names:
            rows = kept.matching(suspect=name, engine=engine)
            if len(rows) > 1:
                texts, of_it = table_row(engine, name, rows)
                table.append(texts)
                parts.append({"engine": engine, "suspect": name, **of_it._asdict()})
                used += rows
    print(tabulate(table, _TITLES, tablefmt="pipe", disable_numparse=True))
    if used:
        print("\n" + counting(used))
    print(json.dumps({"benchmark": "variation", "components": parts}), flush=True)


if __name__ == "__main__":
    main()
