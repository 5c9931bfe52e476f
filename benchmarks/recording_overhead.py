"""Measure the time that `polybench.record` adds to a step of resnet32 when nothing is due.

One training in PyTorch (`programs/independent_torch.py`) alternates between blocks with a recorder and blocks
without; the order within a pair of blocks is random. The recorder has its default steps, which are over before the
first timed block, so that the timed 1,000 steps only count. The batch is small: the smaller a step, the larger the
share of the recorder. The other figures are the time of a call of `step`, and of a step that is recorded. Takes
about 4 minutes on 2 idle cores.

    python benchmarks/recording_overhead.py [--pairs 40] [--steps 25] [--batch-size 32]
"""

from __future__ import annotations

import argparse
import random
import runpy
import tempfile
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

import torch
from _report import Figure, report

import polybench
from polybench.stats.statistics import ratio
from polybench.trace.file import Trace
from polybench.trace.recorder import DEFAULT_STEPS, Recorder

TARGET = 1.05
CALL_STEPS = 100_000
PROGRAM = runpy.run_path(str(Path(__file__).parent / "programs" / "independent_torch.py"))


class Training:
    """A training of resnet32 on random images."""

    def __init__(self, batch_size: int, batches: int) -> None:
        self.model = PROGRAM["resnet32"]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self._compute_loss = torch.nn.CrossEntropyLoss()
        self._batches = [(torch.rand(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))) for _ in range(batches)]

    def run(self, trace: Recorder | None) -> list[float]:
        """Train a step on each batch, and return their seconds."""
        seconds = []
        for images, labels in self._batches:
            start = perf_counter()
            self.optimizer.zero_grad()
            loss = self._compute_loss(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            if trace is not None:
                trace.step(loss=loss, batch=(images, labels))
            seconds.append(perf_counter() - start)
        return seconds


def call_seconds(trace: Recorder, **arguments: Any) -> float:
    """Return the mean time of a call when nothing is due."""
    start = perf_counter()
    for _ in range(CALL_STEPS):
        trace.step(**arguments)
    return (perf_counter() - start) / CALL_STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=25, help="timed steps of a block")
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    training = Training(options.batch_size, options.steps)
    blocks: dict[str, list[list[float]]] = {"recorded": [], "plain": []}
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as folder:
        file = Path(folder) / "resnet32.trace"
        with polybench.record(file, model=training.model, optimizer=training.optimizer) as trace:
            for _ in range(1 + max(DEFAULT_STEPS) // options.steps):
                training.run(trace)
            for _ in range(options.pairs):
                for which in random.sample(sorted(blocks), 2):
                    blocks[which].append(training.run(trace if which == "recorded" else None))
            call = call_seconds(trace, loss=torch.ones(()))
        with Trace(file) as read:
            recorded = mean(step.seconds for step in read.steps.values())
    found = ratio([blocks["recorded"]], [blocks["plain"]])
    step = median(second for block in blocks["plain"] for second in block)
    figures = [
        Figure("recorded / plain step", found.speedup, f"at most {TARGET}", found.speedup <= TARGET, found.ci95),
        Figure("a plain step, ms", 1e3 * step),
        Figure("a call of `step`, us", 1e6 * call),
        Figure("a recorded step, additional ms", 1e3 * recorded),
    ]
    report("recording_overhead", figures, **vars(options), threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
