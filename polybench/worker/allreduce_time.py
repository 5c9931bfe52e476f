"""Time of the gradient all-reduce: the same steps with and without it, alternately."""

from __future__ import annotations

from polybench.engines.base import Engine
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.worker.count_allocations import reset_and_warm_up
from polybench.worker.timing_loop import require_finite_loss

_REPETITIONS = 3
"""The fastest repetition counts, because interference only adds time."""


def allreduce_seconds(engine: Engine, steps: int) -> tuple[float, float] | None:
    """Return the shortest seconds per step with and without the all-reduce.

    Args:
        engine: built, loaded and warm, in data-parallel training.
        steps: steps per block.

    Returns:
        None if the engine cannot leave out the all-reduce.
    """
    reset_and_warm_up(engine)
    if engine.run_steps_without_allreduce(WARMUP_STEPS_PER_BLOCK, 1) is None:  # also compiles that variant
        return None
    repetitions = [
        (_block_seconds(engine, steps), _block_seconds_without_allreduce(engine, steps)) for _ in range(_REPETITIONS)
    ]
    with_allreduce, without_allreduce = (min(seconds) for seconds in zip(*repetitions, strict=True))
    return with_allreduce, without_allreduce


def _block_seconds(engine: Engine, steps: int) -> float:
    reset_and_warm_up(engine)
    seconds = engine.run_steps(WARMUP_STEPS_PER_BLOCK, steps)
    require_finite_loss(engine, f"after {WARMUP_STEPS_PER_BLOCK + steps} steps")
    return seconds / steps


def _block_seconds_without_allreduce(engine: Engine, steps: int) -> float:
    reset_and_warm_up(engine)
    seconds = engine.run_steps_without_allreduce(WARMUP_STEPS_PER_BLOCK, steps)
    assert seconds is not None
    return seconds / steps
