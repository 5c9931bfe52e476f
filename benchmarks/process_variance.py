"""Find the cause of the variation of step times by fixing one factor at a time.

A process is a worker as in a study, with one factor fixed (`_variance_factors.py`); the engines' workers run
side by side and are measured in rounds, in random order. Factors take
turns, process by process in random order, so that drift affects all. For each
engine and factor, it prints the median step and three standard deviations: between processes (with an interval),
between rounds of a process, and within a round. They are nested random effects on logarithms. Page faults, CPU wait
and memory in huge pages show whether a factor was really fixed.

The speed of a core is read before and after each process: it approximates the frequency on a virtual
machine. With 2 cores, torch and tf, a process of every factor takes about 100 seconds, so the default takes
about 8 minutes. `denormals.py` counts denormal numbers, because no variable makes the engines flush them to
zero.

    python benchmarks/process_variance.py [--engines torch,tf] [--factors nothing,huge_pages,...] [--processes 5]
        [--rounds 4] [--steps 20] [--threads 2] [--model lenet] [--batch-size 128] [--output FILE]

With --output, processes are saved in the file as JSON lines, and an interrupted run continues; --processes
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
from _result_file import ResultFile, Row
from _study import Inputs, inputs, measure, warm_workers, watched
from _variance_factors import FACTORS, Factor, apply_factor
from tabulate import tabulate

from polybench.errors import EngineUnavailable
from polybench.machine import host
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration
from polybench.stats.statistics import summarize_step_times

_COUNT = 400_000
"""Iterations of an empty loop, about 10 ms."""


def one_process(
    given: Inputs, factor: Factor, configurations: list[Configuration], rounds: int, steps: int
) -> dict[str, Row]:
    """Return measurements of a fresh worker of each configuration, by engine."""
    seen: dict[str, Row] = {
        configuration.engine: {"samples": [], "page_faults": [], "run_delay": []} for configuration in configurations
    }
    threads = factor.threads or given.plan.workload.threads
    workload = msgspec.structs.replace(given.plan.workload, threads=threads)
    given = given._replace(plan=given.plan._replace(workload=workload))
    with (
        apply_factor(factor, threads) as environment,
        warm_workers(given, configurations, environment) as workers,
    ):
        for _ in range(rounds):
            for configuration in random.sample(configurations, len(configurations)):
                worker, row = workers[configuration], seen[configuration.engine]
                seconds, use = watched(worker.pid, functools.partial(measure, worker, steps))
                row["samples"].append(seconds)
                row["page_faults"].append(use.minor_faults / (WARMUP_STEPS_PER_BLOCK + steps))
                row["run_delay"].append((use.cpu_wait_seconds or 0.0) / (WARMUP_STEPS_PER_BLOCK + steps))
        for configuration in configurations:
            seen[configuration.engine]["huge_bytes"] = huge_bytes(workers[configuration].pid)
    return seen


def huge_bytes(pid: int) -> int:
    """Return a process's memory in transparent huge pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages:"))


def counting_seconds() -> float:
    """Return the time of a counting loop; the fastest of three."""

    def count() -> float:
        start = time.perf_counter()
        for _ in range(_COUNT):
            pass
        return time.perf_counter() - start

    return min(count() for _ in range(3))


def measure_all(results: ResultFile, names: list[str], options: argparse.Namespace) -> None:
    """Run every factor in turn until each has enough processes; Ctrl-C stops early."""
    engines = tuple(options.engines.split(","))
    with inputs(engines, options.steps, options.model, options.batch_size, threads=options.threads) as given:
        for number in range(options.processes):
            for name in random.sample(names, len(names)):
                factor = FACTORS[name]
                wanted = [engine for engine in engines if not factor.only or engine in factor.only]
                missing = [
                    engine for engine in wanted if not results.matching(factor=name, engine=engine, number=number)
                ]
                if not missing:
                    continue
                configurations = [given.configuration(engine) for engine in missing]
                before = counting_seconds()
                try:
                    seen = one_process(given, factor, configurations, options.rounds, options.steps)
                except EngineUnavailable as error:
                    print(f"{name}, {', '.join(missing)}: {error}", file=sys.stderr)
                    continue
                counts = [before, counting_seconds()]
                for engine, row in seen.items():
                    results.add(factor=name, engine=engine, number=number, counting_seconds=counts, **row)
                print(f"process {number + 1} of {options.processes}: {name}", file=sys.stderr, flush=True)


def table_row(engine: str, factor: str, rows: list[Row]) -> tuple[list[str], Components]:
    """Summarize the processes of one factor and engine."""
    samples = [row["samples"] for row in rows]
    parts = components(np.log(np.array(samples)))
    low, high = parts.processes_interval
    delay = statistics.median(delay for row in rows for delay in row["run_delay"])
    faults = [fault for row in rows for fault in row["page_faults"]]
    texts = [
        engine,
        FACTORS[factor].summary,
        str(len(rows)),
        f"{summarize_step_times(samples, 'step').median * 1e3:.2f}",
        f"{parts.processes:.1%} ({low:.1%} to {high:.1%})",
        f"{parts.rounds:.1%}",
        f"{parts.samples:.1%}",
        f"{min(faults):,.0f} to {max(faults):,.0f}",
        f"{delay * 1e3:.2f}",
        f"{statistics.median(row['huge_bytes'] for row in rows) / 2**20:,.0f}",
    ]
    return texts, parts


def counting(rows: list[Row]) -> str:
    """Summarize the variation of the machine itself."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="torch,tf")
    parser.add_argument("--factors", default=",".join(FACTORS), help="default: all, %(default)s")
    parser.add_argument("--processes", type=int, default=5, help="of each factor, 2 or more")
    parser.add_argument("--rounds", type=int, default=4, help="of each process, 2 or more")
    parser.add_argument("--steps", type=int, default=20, help="timed in a round")
    parser.add_argument("--threads", type=int, default=host.usable_threads())
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = options.factors.split(",")
    if unknown := set(names) - set(FACTORS):
        parser.error(f"unknown factor: {', '.join(sorted(unknown))}: expected some of {', '.join(FACTORS)}")
    if min(options.processes, options.rounds, options.steps) < 2:
        parser.error("variation needs 2 processes, rounds and steps at least")
    settings = ("rounds", "steps", "threads", "model", "batch_size")
    results = ResultFile(options.output, **{name: getattr(options, name) for name in settings})
    try:
        measure_all(results, names, options)
    except KeyboardInterrupt:
        print("stopped: what there is so far", file=sys.stderr)
    table, parts, used = [], [], []
    for engine in options.engines.split(","):
        for name in names:
            rows = results.matching(factor=name, engine=engine)
            if len(rows) > 1:
                texts, of_it = table_row(engine, name, rows)
                table.append(texts)
                parts.append({"engine": engine, "factor": name, **of_it._asdict()})
                used += rows
    print(tabulate(table, _TITLES, tablefmt="pipe", disable_numparse=True))
    if used:
        print("\n" + counting(used))
    print(json.dumps({"benchmark": "variation", "components": parts}), flush=True)


if __name__ == "__main__":
    main()
