"""Times that show what limits throughput: the all-reduce of gradients, the input pipeline, or training."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from polybench.engines.base import Engine
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.worker.allocations import reset_and_warm_up
from polybench.worker.timing_loop import measure_block, require_finite

_REPETITIONS = 3
"""The fastest repetition counts, because interference only adds time."""

_TIMING_BLOCKS = 3
"""Timing blocks of each. Their median is not sensitive to interference with one block."""


def allreduce_seconds(engine: Engine, steps: int) -> tuple[float, float] | None:
    """Return the shortest seconds per step with and without the all-reduce; None if it cannot be left out."""
    reset_and_warm_up(engine)
    if engine.run_steps_without_allreduce(WARMUP_STEPS_PER_BLOCK, 1) is None:  # also compiles that variant
        return None

    def block(run_steps: Callable[[int, int], float | None]) -> float:
        reset_and_warm_up(engine)
        seconds = run_steps(WARMUP_STEPS_PER_BLOCK, steps)
        assert seconds is not None
        require_finite(engine, f"after {WARMUP_STEPS_PER_BLOCK + steps} steps")
        return seconds / steps

    blocks = [(block(engine.run_steps), block(engine.run_steps_without_allreduce)) for _ in range(_REPETITIONS)]
    with_allreduce, without_allreduce = (min(seconds) for seconds in zip(*blocks, strict=True))
    return with_allreduce, without_allreduce


def pipeline_seconds(engine: Engine, steps: int) -> float:
    """Return the seconds per batch of the pipeline without training.

    The untimed batches start the pipeline. Since the engine drops them immediately, hardly any prefetched
    batch exists when timing starts.
    """

    def block() -> float:
        engine.drain_pipeline(0, WARMUP_STEPS_PER_BLOCK)
        return engine.drain_pipeline(WARMUP_STEPS_PER_BLOCK, steps) / steps

    return statistics.median(block() for _ in range(_TIMING_BLOCKS))


def training_seconds(engine: Engine, steps: int) -> float:
    """Return the seconds per step on preloaded batches; the first block, which does not count, warms up."""
    blocks = [measure_block(engine, steps) for _ in range(1 + _TIMING_BLOCKS)]
    return statistics.median(statistics.fmean(block.step_seconds) for block in blocks[1:])
