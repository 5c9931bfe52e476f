"""Measure the overhead of the whole harness: a worker in a study against programs without polybench.

The baselines are the plain program (of `polybench export --train`; the same weights, batches and steps) and an
independent program, which shares no code with polybench (`_baselines.py`). All have the same
network, batch size, optimizer, threads and malloc policy. Worker and baselines start together, in fresh
processes, stay alive, and are timed in turns, in random order. A pair is one block of the worker and one
of a baseline; `--pairs 40 --blocks 5` are 8 processes of each with 5 blocks. The ratio is the
geometric mean over processes, its interval Student's t over them. Page faults show whether freed memory was
retained; the settings of every process are checked.

With `NANOGPT=FOLDER`, `--engines torch --models char-gpt --against nanogpt` compares with nanoGPT's own `model.py` in
that folder (https://github.com/karpathy/nanoGPT).

With `--engines flux --against bench`, the baseline is `bench` of the Julia package, which must agree with
the worker within 3 %.

    python benchmarks/process_overhead.py [--engines torch,tf] [--models lenet,dlframeworks-cnn,resnet32] [--pairs 40]
        [--blocks 5] [--against plain,independent] [--malloc retain] [--batch-size N] [--steps N] [--threads N]
        [--output FILE]

Blocks of lenet have 60 steps at batch 128, others 15 at batch 32. A process of lenet takes about 15
seconds with torch or tf. With --output, results are saved in the file as JSON lines, and an interrupted run
continues. Flux needs the Julia packages Flux and NPZ. keras and `imdb-bilstm` only support
--against plain: the independent programs are for flux, torch, tf and jax, and have no sequences.
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

from _baselines import BASELINES, BENCH, NANOGPT, start_baseline
from _result_file import ResultFile, Row
from _study import Inputs, inputs, measure, warm_worker, watched
from tabulate import tabulate

from polybench.errors import EngineUnavailable
from polybench.machine import host
from polybench.protocol.environment import TUNABLES
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Malloc
from polybench.stats.statistics import ratio

TARGET = 1.02
AGREES = 1.03
"""Maximum difference between `bench` and the worker in either direction."""
CHAR_GPT = "char-gpt"
NETWORKS = ("lenet", "resnet32", "dlframeworks-cnn")
"""Those of the independent programs."""
SIZES = {
    "lenet": (128, 60),
    "dlframeworks-cnn": (32, 15),
    "resnet32": (32, 15),
    "imdb-bilstm": (32, 15),
    CHAR_GPT: (12, 30),
}
"""Batch size, and steps of a block that takes a second or two on 2 cores."""
_WORKER = "polybench"


class Racer(NamedTuple):
    """A live process, and a function that times one block of it."""

    pid: int
    block: Callable[[], list[float]]
    steps: int
    """Steps of a block, including untimed ones."""


def one_process(given: Inputs, configuration: Configuration, against: list[str], blocks: int, steps: int) -> Row:
    """Step times as {program: [block][step]}, and page faults per step as {program: [block]}."""
    with contextlib.ExitStack() as stack:
        others = {name: stack.enter_context(start_baseline(name, given, configuration, steps)) for name in against}
        worker = stack.enter_context(warm_worker(given, configuration))
        racers = {_WORKER: Racer(worker.pid, functools.partial(measure, worker, steps), WARMUP_STEPS_PER_BLOCK + steps)}
        for name, other in others.items():
            # The plain program starts with a block of its own, the other one waits; both first blocks are discarded.
            other.answer() if name == "plain" else other.block()
            untimed = WARMUP_STEPS_PER_BLOCK if name == "plain" else 0
            racers[name] = Racer(other.pid, other.block, untimed + steps)
        settings_of = {name: malloc_settings(racer.pid) for name, racer in racers.items()}
        if len(set(settings_of.values())) > 1:
            sys.exit(f"malloc settings differ: {settings_of}")
        samples: dict[str, list[list[float]]] = {name: [] for name in racers}
        faults: dict[str, list[float]] = {name: [] for name in racers}
        for _ in range(blocks):
            for name in random.sample(sorted(racers), len(racers)):
                racer = racers[name]
                seconds, use = watched(racer.pid, racer.block)
                samples[name].append(seconds)
                faults[name].append(use.minor_faults / racer.steps)
    return {"samples": samples, "page_faults": faults}


def malloc_settings(pid: int) -> str:
    """Return the malloc settings that a process started with."""
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(line for line in variables if line.startswith(f"{TUNABLES}="))


def compare_programs(results: ResultFile, given: Inputs, engine: str, options: argparse.Namespace, steps: int) -> None:
    """Run all missing processes of one engine and network."""
    configuration, workload = given.configuration(engine), given.plan.workload
    what: Row = {"engine": engine, "model": workload.model, "batch_size": workload.batch_size, "steps": steps}
    number = -(-options.pairs // options.blocks)
    for process in range(len(results.matching(**what)), number):
        row = one_process(given, configuration, options.against.split(","), options.blocks, steps)
        results.add(**what, process=process, **row)
        medians = [f"{who} {level(blocks) * 1e3:.2f} ms" for who, blocks in row["samples"].items()]
        says = f"{engine}, {workload.model}: process {process + 1} of {number}: {', '.join(medians)}"
        print(says, file=sys.stderr, flush=True)


def level(blocks: list[list[float]]) -> float:
    return statistics.geometric_mean(map(statistics.median, blocks))


def table_row(engine: str, model: str, who: str, rows: list[Row]) -> tuple[list[str], Row]:
    """Compare the worker with one baseline."""
    ours, theirs = ([row["samples"][name] for row in rows] for name in (_WORKER, who))
    found = ratio(ours, theirs)
    interval = "{:.3f} to {:.3f}".format(*found.ci95) if found.ci95 else "one block"
    faults = [statistics.median(f for row in rows for f in row["page_faults"][name]) for name in (_WORKER, who)]
    steps = [statistics.geometric_mean(map(level, processes)) for processes in (ours, theirs)]
    texts = [
        engine,
        f"{model}, {rows[0]['batch_size']}",
        who,
        str(sum(map(len, theirs))),
        *(f"{step * 1e3:.2f}" for step in steps),
        *(f"{count:,.0f}" for count in faults),
        f"{found.speedup:.3f} ({interval})",
        *_verdict(who, found.speedup),
    ]
    what = {"engine": engine, "model": model, "against": who}
    return texts, what | found._asdict()


def _verdict(who: str, value: float) -> tuple[str, str]:
    """Return the target, and whether it was met."""
    if who == BENCH:
        return f"within {AGREES - 1:.0%}", "yes" if 1 / AGREES <= value <= AGREES else "no"
    return f"at most {TARGET}", "yes" if value <= TARGET else "no"


_TITLES = [
    "engine",
    "network, batch",
    "baseline",
    "pairs",
    "worker, ms",
    "baseline, ms",
    "faults a step: worker",
    "baseline",
    "worker / baseline",
    "target",
    "met",
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="torch,tf")
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--pairs", type=int, default=40, help="blocks of worker and baseline")
    parser.add_argument("--blocks", type=int, default=5, help="of one process")
    parser.add_argument("--against", default=",".join(BASELINES))
    parser.add_argument("--steps", type=int, help="timed steps of a block")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--threads", type=int, default=host.usable_threads())
    parser.add_argument("--malloc", choices=get_args(Malloc), default="retain")
    parser.add_argument("--output", type=Path, help="file of results; continues an existing one")
    options = parser.parse_args()
    for given, known in ((options.models, SIZES), (options.against, (*BASELINES, BENCH, NANOGPT))):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: expected one of {', '.join(known)}")
    if BENCH in options.against.split(",") and options.engines != "flux":
        parser.error(f"--against {BENCH} is for --engines flux")
    if (NANOGPT in options.against.split(",")) != (CHAR_GPT in options.models.split(",")):
        parser.error(f"--against {NANOGPT} is for --models {CHAR_GPT}, which has no other baseline")
    return options


def main() -> None:
    options = arguments()
    settings = ("blocks", "against", "threads", "malloc")
    results = ResultFile(options.output, **{name: getattr(options, name) for name in settings})
    engines, models = options.engines.split(","), options.models.split(",")
    sizes = {model: (options.batch_size or SIZES[model][0], options.steps or SIZES[model][1]) for model in models}
    try:
        for model, (batch_size, steps) in sizes.items():
            with inputs(tuple(engines), steps, model, batch_size, options.malloc, options.threads) as given:
                for engine in engines:
                    try:
                        compare_programs(results, given, engine, options, steps)
                    except EngineUnavailable as error:
                        print(f"{engine} is not compared: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped: what there is so far", file=sys.stderr)
    table, figures = [], []
    for engine in engines:
        for model, (batch_size, steps) in sizes.items():
            rows = results.matching(engine=engine, model=model, batch_size=batch_size, steps=steps)
            for who in options.against.split(",") if rows else ():
                texts, figure = table_row(engine, model, who, rows)
                table.append(texts)
                figures.append(figure)
    print(tabulate(table, _TITLES, tablefmt="pipe", disable_numparse=True))
    print(json.dumps({"benchmark": "process_overhead", "figures": figures}), flush=True)


if __name__ == "__main__":
    main()
