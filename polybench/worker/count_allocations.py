"""Memory and allocations of training steps, measured in passes without timing."""

from __future__ import annotations

import gc

from polybench.engines.base import Engine
from polybench.machine.memory import read_rss, reset_peak
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.resources import Allocations, Memory


def measure_memory_and_allocations(engine: Engine, steps: int) -> tuple[Memory, Allocations]:
    """Run the steps of `measure_block` twice: once for memory, once for allocations.

    Counting allocations itself takes memory, hence the two passes.

    Args:
        engine: built, loaded and warm.
        steps: steps per pass.

    Returns:
        Memory, whose peak includes the process's life before this call, and allocations.
    """
    reset_and_warm_up(engine)
    peak = read_rss().peak
    can_reset = reset_peak()
    before = read_rss()
    engine.run_steps(WARMUP_STEPS_PER_BLOCK, steps)
    after = read_rss()
    memory = Memory(
        peak_rss_bytes=max(peak, after.peak),
        rss_anon_bytes=after.anonymous,
        rss_file_bytes=after.file_mapped,
        step_peak_increase_bytes=max(0, after.peak - before.total) if can_reset else None,
        device_peak_bytes=engine.device_peak_bytes(),
    )
    reset_and_warm_up(engine)
    return memory, engine.count_allocations(WARMUP_STEPS_PER_BLOCK, steps)


def reset_and_warm_up(engine: Engine) -> None:
    """Reset the engine and run the untimed steps, as `measure_block` does before its timed steps."""
    engine.reset()
    gc.collect()
    for step in range(WARMUP_STEPS_PER_BLOCK):
        engine.run_steps(step, 1)
