"""Overhead of the whole harness: a worker as a study runs it, against programs that know nothing of it.

The opponents are the plain script (what `--describe` prints; the same weights, batches and steps) and an
independent program, which shares no line with polybench or its scripts (`_opponents.py`). All have the same
network, batch size, optimizer, threads and heap. Worker and opponents start side by side, in fresh
processes, live together, and are timed in turns, in random order: a pair is one block of the worker and one
of an opponent, and `--pairs 40 --blocks 5` are 8 processes of each with 5 blocks. The ratio is the
geometric mean over processes, its interval Student's t over them. Page faults show whether the heap was
kept; that all were told so is checked.

With `--engines flux --against bench` the opponent is `bench` of the Julia package, which must agree with
the worker within 3 %.

    python benchmarks/process_overhead.py [--engines torch,tf] [--models lenet,rosetta,resnet32] [--pairs 40]
        [--blocks 5] [--against plain,independent] [--heap keep] [--batch-size N] [--steps N] [--threads N]
        [--output FILE]

Blocks of lenet have 60 steps at batch 128, of the others 15 at batch 32. A process of lenet takes about 15
seconds with torch or tf. With --output, processes are kept in the file as JSON lines: one that was stopped
goes on. Flux needs the Julia packages Flux and NPZ. keras and `imdb-bilstm` can be raced
--against plain: the independent programs are for flux, torch and tf, and have no sequences.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
from _kept import Kept, Row
from _opponents import BENCH, OPPONENTS, opponent
from _study import Inputs, inputs, measure, warm_worker, watched
from tabulate import tabulate

from polybench.core.errors import Unavailable
from polybench.core.spec import UNTIMED_STEPS, Cell, Heap
from polybench.core.statistics import ratio
from polybench.machine import host
from polybench.plain import NETWORKS, OF_TOKENS
from polybench.wire.environment import TUNABLES

TARGET = 1.02
AGREES = 1.03
"""The most that `bench` and the worker may be apart, either way: they are to say the same."""
SIZES = {"lenet": (128, 60), "rosetta": (32, 15), "resnet32": (32, 15), "imdb-bilstm": (32, 15)}
"""Batch size, and steps of a block: one takes a second or two on 2 cores."""
_WORKER = "polybench"


class Racer(NamedTuple):
    """A live process, and what times one block of it."""

    pid: int
    block: Callable[[], list[float]]
    steps: int
    """Of a block, those that are not timed included."""


def one_process(given: Inputs, cell: Cell, against: list[str], blocks: int, steps: int) -> Row:
    """Samples as {who: [block][sample]}, and page faults a step as {who: [block]}."""
    with contextlib.ExitStack() as stack:
        others = {name: stack.enter_context(opponent(name, given, cell, steps)) for name in against}
        worker = stack.enter_context(warm_worker(given, cell))
        racers = {
            _WORKER: Racer(worker.pid, functools.partial(measure, worker, steps), UNTIMED_STEPS + steps)
        }
        for name, other in others.items():
            # The plain script begins with its block, the other one waits to be told; both are discarded.
            other.answer() if name == "plain" else other.block()
            untimed = UNTIMED_STEPS if name == "plain" else 0
            racers[name] = Racer(other.pid, other.block, untimed + steps)
        heaps = {name: told_of_heap(racer.pid) for name, racer in racers.items()}
        if len(set(heaps.values())) > 1:
            sys.exit(f"not all have the same heap: {heaps}")
        samples: dict[str, list[list[float]]] = {name: [] for name in racers}
        faults: dict[str, list[float]] = {name: [] for name in racers}
        for _ in range(blocks):
            for name in random.sample(sorted(racers), len(racers)):
                racer = racers[name]
                seconds, use = watched(racer.pid, racer.block)
                samples[name].append(seconds)
                faults[name].append(use.minor_faults / racer.steps)
    return {"samples": samples, "page_faults": faults}


def told_of_heap(pid: int) -> str:
    """What the C library of a process read when it started."""
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(line for line in variables if line.startswith(f"{TUNABLES}="))


def race(kept: Kept, given: Inputs, engine: str, options: argparse.Namespace, steps: int) -> None:
    """All processes of one engine and network that are missing."""
    cell, workload = given.cell(engine), given.plan.workload
    what: Row = {"engine": engine, "model": workload.model, "batch_size": workload.batch_size, "steps": steps}
    number = -(-options.pairs // options.blocks)
    for process in range(len(kept.matching(**what)), number):
        row = one_process(given, cell, options.against.split(","), options.blocks, steps)
        kept.add(**what, process=process, **row)
        medians = [f"{who} {level(blocks) * 1e3:.2f} ms" for who, blocks in row["samples"].items()]
        says = f"{engine}, {workload.model}: process {process + 1} of {number}: {', '.join(medians)}"
        print(says, file=sys.stderr, flush=True)


def level(blocks: list[list[float]]) -> float:
    return statistics.geometric_mean(map(statistics.median, blocks))


def table_row(engine: str, model: str, who: str, rows: list[Row]) -> tuple[list[str], Row]:
    """The worker against one opponent."""
    ours, theirs = ([row["samples"][name] for row in rows] for name in (_WORKER, who))
    found = ratio(ours, theirs)
    interval = "{:.3f} to {:.3f}".format(*found.interval95) if found.interval95 else "one block"
    faults = [
        statistics.median(f for row in rows for f in row["page_faults"][name]) for name in (_WORKER, who)
    ]
    steps = [statistics.geometric_mean(map(level, processes)) for processes in (ours, theirs)]
    texts = [
        engine,
        f"{model}, {rows[0]['batch_size']}",
        who,
        str(sum(map(len, theirs))),
        *(f"{step * 1e3:.2f}" for step in steps),
        *(f"{count:,.0f}" for count in faults),
        f"{found.value:.3f} ({interval})",
        *_verdict(who, found.value),
    ]
    what = {"engine": engine, "model": model, "against": who}
    return texts, what | msgspec.structs.asdict(found)


def _verdict(who: str, value: float) -> tuple[str, str]:
    """The target, and whether it was met."""
    if who == BENCH:
        return f"within {AGREES - 1:.0%}", "yes" if 1 / AGREES <= value <= AGREES else "no"
    return f"at most {TARGET}", "yes" if value <= TARGET else "no"


_TITLES = [
    "engine",
    "network, batch",
    "opponent",
    "pairs",
    "worker, ms",
    "opponent, ms",
    "faults a step: worker",
    "opponent",
    "worker / opponent",
    "target",
    "met",
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="torch,tf")
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--pairs", type=int, default=40, help="blocks of worker and opponent")
    parser.add_argument("--blocks", type=int, default=5, help="of one process")
    parser.add_argument("--against", default=",".join(OPPONENTS))
    parser.add_argument("--steps", type=int, help="timed steps of a block")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--threads", type=int, default=host.usable_threads())
    parser.add_argument("--heap", choices=get_args(Heap), default="keep")
    parser.add_argument("--output", type=Path, help="keeps processes; goes on with what it has")
    options = parser.parse_args()
    for given, known in ((options.models, (*NETWORKS, *OF_TOKENS)), (options.against, (*OPPONENTS, BENCH))):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    if BENCH in options.against.split(",") and options.engines != "flux":
        parser.error(f"--against {BENCH} is for --engines flux")
    return options


def main() -> None:
    options = arguments()
    settings = ("blocks", "against", "threads", "heap")
    kept = Kept(options.output, **{name: getattr(options, name) for name in settings})
    engines, models = options.engines.split(","), options.models.split(",")
    sizes = {
        model: (options.batch_size or SIZES[model][0], options.steps or SIZES[model][1]) for model in models
    }
    try:
        for model, (batch_size, steps) in sizes.items():
            with inputs(tuple(engines), steps, model, batch_size, options.heap, options.threads) as given:
                for engine in engines:
                    try:
                        race(kept, given, engine, options, steps)
                    except Unavailable as error:
                        print(f"{engine} is not raced: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped: what there is so far", file=sys.stderr)
    table, figures = [], []
    for engine in engines:
        for model, (batch_size, steps) in sizes.items():
            rows = kept.matching(engine=engine, model=model, batch_size=batch_size, steps=steps)
            for who in options.against.split(",") if rows else ():
                texts, figure = table_row(engine, model, who, rows)
                table.append(texts)
                figures.append(figure)
    print(tabulate(table, _TITLES, tablefmt="pipe", disable_numparse=True))
    print(json.dumps({"benchmark": "process_overhead", "figures": figures}), flush=True)


if __name__ == "__main__":
    main()
