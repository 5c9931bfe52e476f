"""The only timing loop: it measures every timing block of every configuration."""

from __future__ import annotations

import gc
import math
import statistics
import time

import numpy as np

from polybench.engines.base import Engine
from polybench.errors import ConfigurationFailed
from polybench.machine.memory import malloc_bytes_in_use, read_rss
from polybench.protocol.calls import Calibrated
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.resources import BlockMeasured, MemoryInUse

STEPS_BETWEEN_READINGS = 5
"""Steps between two readings of the memory in use."""


def calibrate(engine: Engine, steps: int) -> Calibrated:
    """Run the steps of a timing block before the first round, and read the memory in use every few steps.

    Collecting garbage for these readings would change the times of a timing block, which these steps do not belong to.
    """
    _start_block(engine)
    call_overheads: list[float] = []
    step_times: list[float] = []
    trained, in_use = [0], [bytes_in_use(engine)]
    while trained[-1] < steps:
        n = min(STEPS_BETWEEN_READINGS, steps - trained[-1])
        first = WARMUP_STEPS_PER_BLOCK + trained[-1]
        if engine.timing_resolution == "block":
            step_times += n * [_timed_call(engine, first, n, call_overheads) / n]
        else:
            step_times += [_timed_call(engine, first + step, 1, call_overheads) for step in range(n)]
        trained.append(trained[-1] + n)
        in_use.append(bytes_in_use(engine))
    require_finite(engine, f"after {WARMUP_STEPS_PER_BLOCK + steps} steps")
    if engine.timing_resolution == "block":
        step_times = [statistics.fmean(step_times)]
    known = [one for one in in_use if one is not None]
    return Calibrated(step_times, MemoryInUse(trained, known) if len(known) == len(trained) else None)


def bytes_in_use(engine: Engine) -> int | None:
    """Collect garbage, and return the bytes in use on the host and on the engine's GPU; None without a source.

    A heap of the engine's own replaces malloc, from which it takes large arrays.
    """
    engine.run_gc()
    gc.collect()
    heap, on_device = engine.heap_bytes_in_use(), engine.device_bytes_in_use()
    on_host = malloc_bytes_in_use() if heap is None else heap
    return None if on_host is None else on_host + (on_device or 0)


def measure_block(engine: Engine, steps: int, injected_delay: float = 0.0) -> BlockMeasured:
    """Reset the model, run two untimed steps, then time the next `steps` steps. All blocks time the same steps.

    `injected_delay` is a busy wait added to each step, as a fraction of the median untimed step (for power tests).
    Raises ConfigurationFailed if the loss after the block, or a logit of a forward pass, is not finite.
    """
    warmup_times = _start_block(engine)
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
    call_overhead = statistics.median(call_overheads)
    return BlockMeasured(
        step_times,
        steps // len(step_times),
        read_rss().peak,
        gc=gc_after - gc_before if gc_after and gc_before else None,
        data_wait_seconds=None if wait_after is None or wait_before is None else wait_after - wait_before,
        call_overhead_seconds=call_overhead if call_overhead >= 0 else None,
    )


def _start_block(engine: Engine) -> list[float]:
    """Reset the model and run the untimed steps; return their seconds."""
    engine.reset()
    gc.collect()  # collects garbage of the messages before the timed steps
    return [engine.run_steps(step, 1) for step in range(WARMUP_STEPS_PER_BLOCK)]


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
