"""Times of the input pipeline alone, and of training alone; the slower one limits throughput."""

from __future__ import annotations

import statistics

from polybench.engines.base import Engine
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.worker.timing_loop import measure_block

_TIMING_BLOCKS = 3
"""Timing blocks of each. Their median is not sensitive to interference with one block."""


def pipeline_seconds(engine: Engine, steps: int) -> float:
    """Return the seconds per batch of the pipeline without training.

    The untimed batches start the pipeline. Since the engine drops them immediately, hardly any prefetched
    batch exists when timing starts.

    Args:
        engine: with an open pipeline, built and warm.
        steps: batches per timing block.
    """

    def block() -> float:
        engine.drain_pipeline(0, WARMUP_STEPS_PER_BLOCK)
        return engine.drain_pipeline(WARMUP_STEPS_PER_BLOCK, steps) / steps

    return statistics.median(block() for _ in range(_TIMING_BLOCKS))


def training_seconds(engine: Engine, steps: int) -> float:
    """Return the seconds per step on preloaded batches.

    Args:
        engine: built and loaded; the first block, which does not count, warms it up.
        steps: steps per timing block.
    """
    blocks = [measure_block(engine, steps) for _ in range(1 + _TIMING_BLOCKS)]
    return statistics.median(statistics.fmean(block.step_times) for block in blocks[1:])
