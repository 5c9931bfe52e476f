"""An input pipeline, and the training that it feeds, each timed alone: the slower one is the limit."""

from __future__ import annotations

import statistics

from polybench.core.spec import UNTIMED_STEPS
from polybench.engines.base import Engine
from polybench.worker.timed import measure_block

_BLOCKS = 3
"""Of each; the median one counts, so that one disturbance does not."""


def pipeline_seconds(engine: Engine, steps: int) -> float:
    """Seconds of a batch that nobody trains on.

    The untimed batches start the pipeline. Nothing is done with them, so hardly any batch is ready when the
    clock starts.

    Args:
        engine: with a stream, built and warm.
        steps: batches a block.
    """

    def block() -> float:
        engine.draw_batches(0, UNTIMED_STEPS)
        return engine.draw_batches(UNTIMED_STEPS, steps) / steps

    return statistics.median(block() for _ in range(_BLOCKS))


def training_seconds(engine: Engine, steps: int) -> float:
    """Seconds of a step on preloaded batches.

    Args:
        engine: built and loaded; its steps on these batches need not be warm.
        steps: how many a block.
    """
    blocks = [measure_block(engine, steps) for _ in range(1 + _BLOCKS)]
    return statistics.median(statistics.fmean(block.step_seconds) for block in blocks[1:])
