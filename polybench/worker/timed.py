"""The only timed loop: one block of one cell, as every cell of every round is measured."""

from __future__ import annotations

import gc
import math
import statistics
import time
from typing import NamedTuple

from polybench.core.errors import CellFailed
from polybench.core.job import Collected
from polybench.core.spec import UNTIMED_STEPS
from polybench.engines.base import Engine


class Block(NamedTuple):
    """Seconds of a step, one entry a sample; meanwhile, what the engine's garbage collector did, and how many
    seconds of all steps were spent waiting for data. `call_seconds` is what a call of the engine took, from
    Python and back, beside the seconds that it says of its steps, which are the samples: the median over
    calls, None where the engine says more than have passed, as one with a clock of its own does."""

    step_seconds: list[float]
    collected: Collected | None
    waited_seconds: float | None
    call_seconds: float | None


def measure_block(engine: Engine, steps: int, handicap: float = 0.0) -> Block:
    """Time training steps 2, 3, ..., always the same ones of the same training.

    Args:
        engine: built, loaded and warm.
        steps: how many to time.
        handicap: busy wait added to each sample, as a fraction of the median untimed step (for power tests).

    Returns:
        A sample for each step, or one, the mean of the block, if the engine can only time steps together.

    Raises:
        CellFailed: the loss after the block is not finite.
    """
    engine.reset()
    gc.collect()  # what the messages left behind must not be collected in a sample
    untimed = [engine.run_steps(step, 1) for step in range(UNTIMED_STEPS)]
    before, waited_before = engine.collected(), engine.waited()
    beside: list[float] = []
    if engine.sample_kind == "block":
        seconds = [_called(engine, UNTIMED_STEPS, steps, beside) / steps]
    elif handicap:
        wait = handicap * statistics.median(untimed)
        seconds = [
            _called(engine, UNTIMED_STEPS + step, 1, beside) + _busy_wait(wait) for step in range(steps)
        ]
    else:
        seconds = [_called(engine, UNTIMED_STEPS + step, 1, beside) for step in range(steps)]
    after, waited_after = engine.collected(), engine.waited()
    # A loss that is not finite makes the weights and every later loss so: the last one tells for all.
    finite_loss(engine, f"after {UNTIMED_STEPS + steps} steps")
    waited = None if waited_after is None or waited_before is None else waited_after - waited_before
    call = statistics.median(beside)
    collected = after - before if after and before else None
    return Block(seconds, collected, waited, call if call >= 0 else None)


def _called(engine: Engine, first: int, n: int, beside: list[float]) -> float:
    """What the engine says of these steps; what the call took beside that is added to `beside`."""
    start = time.perf_counter()
    seconds = engine.run_steps(first, n)
    beside.append(time.perf_counter() - start - seconds)
    return seconds


def finite_loss(engine: Engine, when: str) -> float:
    """The last step's loss; raises CellFailed if it is infinite or not a number."""
    loss = engine.loss()
    if not math.isfinite(loss):
        raise CellFailed(f"the loss is {loss} {when}; try a lower --learning-rate")
    return loss


def _busy_wait(seconds: float) -> float:
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        pass
    return elapsed
