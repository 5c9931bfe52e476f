"""The only timing loop: it measures every timing block of every configuration."""

from __future__ import annotations

import gc
import math
import statistics
import time
from typing import NamedTuple

import numpy as np

from polybench.engines.base import Engine
from polybench.engines.job import GcStats
from polybench.errors import ConfigurationFailed
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK


class BlockTimes(NamedTuple):
    """Times of a timing block.

    `step_times` are seconds per step: one value per step, or one per block if the engine times steps together.
    `call_overhead_seconds` is the median of the time that Python measures around a call, minus the step times that the
    engine reports. It is None if negative, which happens only with a simulated clock.
    """

    step_times: list[float]
    gc_stats: GcStats | None
    data_wait_seconds: float | None
    call_overhead_seconds: float | None


def measure_block(engine: Engine, steps: int, injected_delay: float = 0.0) -> BlockTimes:
    """Reset the model, run two untimed steps, then time the next `steps` steps. All blocks time the same steps.

    `injected_delay` is a busy wait added to each step, as a fraction of the median untimed step (for power tests).
    Raises ConfigurationFailed if the loss after the block, or a logit of a forward pass, is not finite.
    """
    engine.reset()
    gc.collect()  # collects garbage of the messages before the timed steps
    warmup_times = [engine.run_steps(step, 1) for step in range(WARMUP_STEPS_PER_BLOCK)]
    gc_before, wait_before = engine.gc_stats(), engine.data_wait_seconds()
    call_overheads: list[float] = []
    if engine.timing_resolution == "block":
        step_times = [_timed_call(engine, WARMUP_STEPS_PER_BLOCK, steps, call_overheads) / steps]
    elif injected_delay:
        delay_seconds = injected_delay * statistics.median(warmup_times)
        step_times = [
            _timed_call(engine, WARMUP_STEPS_PER_BLOCK + step, 1, call_overheads) + _busy_wait(delay_seconds)
            for step in range(steps)
        ]
    else:
        step_times = [_timed_call(engine, WARMUP_STEPS_PER_BLOCK + step, 1, call_overheads) for step in range(steps)]
    gc_after, wait_after = engine.gc_stats(), engine.data_wait_seconds()
    # After a loss that is not finite, all later losses are not finite either, so this checks every training step.
    require_finite(engine, f"after {WARMUP_STEPS_PER_BLOCK + steps} steps")
    data_wait_seconds = None if wait_after is None or wait_before is None else wait_after - wait_before
    call_overhead = statistics.median(call_overheads)
    gc_stats = gc_after - gc_before if gc_after and gc_before else None
    return BlockTimes(step_times, gc_stats, data_wait_seconds, call_overhead if call_overhead >= 0 else None)


def _timed_call(engine: Engine, first: int, n: int, call_overheads: list[float]) -> float:
    """Return the engine's seconds for these steps; append the call's overhead to `call_overheads`."""
    start = time.perf_counter()
    seconds = engine.run_steps(first, n)
    call_overheads.append(time.perf_counter() - start - seconds)
    return seconds


def require_finite(engine: Engine, when: str) -> list[float]:
    """Return the last step's loss, if it has one; raises ConfigurationFailed for an infinite or undefined result."""
    if engine.is_forward_pass:
        if not np.isfinite(engine.step_logits()).all():
            raise ConfigurationFailed(f"the logits are not finite {when}")
        return []
    loss = engine.loss()
    if not math.isfinite(loss):
        raise ConfigurationFailed(f"the loss is {loss} {when}: try a lower --learning-rate")
    return [loss]


def _busy_wait(seconds: float) -> float:
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        pass
    return elapsed
