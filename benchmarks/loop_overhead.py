"""Measure the overhead of the timed loop: polybench's against one written by hand, alternating in one process.

Both loops train the same model, `lenet` with batch 128, on the same batches, from the same weights in each
block, so only the loop differs. The order within a pair of blocks is random. Each engine has a process of its
own, because frameworks do not share one. Takes about 2 minutes on 2 idle cores.

The loops of flux are in Julia. The time of the call from Python, minus the seconds that Julia reports,
is a separate figure, which no step time includes. The time of empty calls in a row is another figure: the
difference is the effect of cold caches after a step.

    python benchmarks/loop_overhead.py [--pairs 40] [--steps 30] [--engines torch,tf,flux]
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from _report import Figure, report
from _study import inputs

from polybench.data.batch_files import open_epoch
from polybench.engines import ENGINES
from polybench.machine.host import usable_threads
from polybench.planning.plan import engine_spec
from polybench.planning.schedule import WARM_UP_STEPS
from polybench.protocol.environment import worker_environment
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.stats.statistics import ratio
from polybench.worker.timing_loop import measure_block

TARGET = 1.01

Loop = Callable[[Any, int], list[float]]
"""Function from engine and number of steps to seconds of each step."""


def torch_loop(engine: Any, steps: int) -> list[float]:
    """The loop of a PyTorch user, around the engine's model and optimizer."""
    batches, loss_of, optimizer = engine._batches, engine._compute_loss, engine._optimizer
    seconds = []
    for images, labels in batches[WARMUP_STEPS_PER_BLOCK : WARMUP_STEPS_PER_BLOCK + steps]:
        start = perf_counter()
        optimizer.zero_grad()
        loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        seconds.append(perf_counter() - start)
    return seconds


def tf_loop(engine: Any, steps: int) -> list[float]:
    """The loop of a TensorFlow user, around the engine's `tf.function`."""
    batches, train_step = engine._batches, engine._step
    seconds = []
    for images, labels in batches[WARMUP_STEPS_PER_BLOCK : WARMUP_STEPS_PER_BLOCK + steps]:
        start = perf_counter()
        train_step(images, labels)
        seconds.append(perf_counter() - start)
    return seconds


_FLUX_LOOP = """
(trainer, batches, first, n) -> map(first:(first + n - 1)) do step
    (; images, labels) = batches[step % length(batches) + 1]
    start = time_ns()
    loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(images), labels), trainer.network.chain)
    Flux.update!(trainer.state, trainer.network.chain, gradients[1])
    (time_ns() - start) / 1e9
end
"""


@functools.cache
def _in_julia() -> Any:
    from juliacall import Main  # the engine has started Julia

    return Main.seval(_FLUX_LOOP)


def flux_loop(engine: Any, steps: int) -> list[float]:
    """The loop of a Flux user, in Julia, around the engine's chain and optimizer state."""
    return list(_in_julia()(engine._trainer, engine._batches, WARMUP_STEPS_PER_BLOCK, steps))


def bridge_seconds(engine: Any, calls: int, steps: int) -> list[float]:
    """Return, for each call with this many steps, its time in Python minus the engine's seconds."""
    seconds = []
    for step in range(calls):
        start = perf_counter()
        inside = engine._run(range(step, step + steps))
        seconds.append(perf_counter() - start - inside)
    return seconds


LOOPS: dict[str, Loop] = {"torch": torch_loop, "tf": tf_loop, "flux": flux_loop}
BRIDGE_TARGET = 20e-6


def block_by_hand(engine: Any, steps: int, loop: Loop) -> list[float]:
    """Run a block of the hand-written loop from the same weights as polybench's."""
    engine.reset()
    gc.collect()
    engine.run_steps(0, WARMUP_STEPS_PER_BLOCK)
    return loop(engine, steps)


def child(name: str, pairs: int, steps: int) -> dict[str, list[list[float]]]:
    """Run both loops' blocks in this process; for flux, also measure the call."""
    with inputs((name,), steps) as given:
        configuration = given.configuration(name)
        module, _, factory = engine_spec(configuration).factory.partition(":")
        engine = getattr(importlib.import_module(module), factory)()
        with np.load(given.files.weights) as weights:
            engine.build(given.plan.job(configuration), dict(weights))
        engine.load(*open_epoch(given.files.epoch))
        engine.reset()
        engine.run_steps(0, WARM_UP_STEPS)
        loops: dict[str, Loop] = {
            "polybench": lambda engine, steps: measure_block(engine, steps).step_seconds,
            "hand": functools.partial(block_by_hand, loop=LOOPS[name]),
        }
        blocks: dict[str, list[list[float]]] = {which: [] for which in loops}
        for _ in range(pairs):
            for which in random.sample(sorted(loops), 2):
                blocks[which].append(loops[which](engine, steps))
        if name == "flux":
            engine.reset()
            blocks["bridge"] = [bridge_seconds(engine, 1_000, 0), bridge_seconds(engine, 5 * steps, 1)]
        return blocks


def figures(name: str, blocks: dict[str, list[list[float]]]) -> list[Figure]:
    """Print the ratio of medians over all blocks, and the mean ratio of pairs with its interval."""
    ours, by_hand = blocks["polybench"], blocks["hand"]
    of_medians = median(chain.from_iterable(ours)) / median(chain.from_iterable(by_hand))
    paired = ratio([ours], [by_hand])
    found = [
        Figure(f"{name}: polybench / by hand", of_medians, f"at most {TARGET}", of_medians <= TARGET),
        Figure(f"{name}: the same, paired blocks", paired.speedup, ci95=paired.ci95),
    ]
    if "bridge" in blocks:
        empty, step = (median(seconds) * 1e6 for seconds in blocks["bridge"])
        met, target = empty < BRIDGE_TARGET * 1e6, f"below {BRIDGE_TARGET * 1e6:.0f}"
        found.append(Figure(f"{name}: an empty call from Python, us", empty, target, met))
        found.append(Figure(f"{name}: the call of a step, after another step, us", step))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="torch,tf")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30, help="timed steps of a block")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.pairs, options.steps)))
        return
    found: list[Figure] = []
    for name in options.engines.split(","):
        environment = worker_environment(ENGINES[name], "cpu", usable_threads())
        command = [sys.executable, __file__, "--child", name]
        command += ["--pairs", str(options.pairs), "--steps", str(options.steps)]
        run = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
        found += figures(name, json.loads(run.stdout.splitlines()[-1]))
    report("loop_overhead", found, pairs=options.pairs, steps=options.steps)


if __name__ == "__main__":
    main()
