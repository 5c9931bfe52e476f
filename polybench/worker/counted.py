"""The passes that count and are never timed: the memory of a few training steps, and their allocations."""

from __future__ import annotations

import gc

from polybench.core.document.resources import Allocations, Memory
from polybench.core.spec import UNTIMED_STEPS
from polybench.engines.base import Engine
from polybench.machine.resident_memory import reset_peak, resident


def count(engine: Engine, steps: int) -> tuple[Memory, Allocations]:
    """The same steps as `measure.measure_block` times, once for memory and once for allocations.

    Two passes, since what counts allocations takes memory itself.

    Args:
        engine: built, loaded and warm.
        steps: how many to count.

    Returns:
        The memory's peak is that of the process's whole life before this call.
    """
    start(engine)
    peak = resident().peak
    can_reset = reset_peak()
    before = resident()
    engine.run_steps(UNTIMED_STEPS, steps)
    after = resident()
    memory = Memory(
        peak_rss_bytes=max(peak, after.peak),
        rss_anon_bytes=after.anonymous,
        rss_file_bytes=after.mapped,
        step_peak_increase_bytes=max(0, after.peak - before.total) if can_reset else None,
        device_peak_bytes=engine.device_peak_bytes(),
    )
    start(engine)
    return memory, engine.count_allocations(UNTIMED_STEPS, steps)


def start(engine: Engine) -> None:
    """Reset, and take the untimed steps, as `measure_block` does: what comes next is what it times."""
    engine.reset()
    gc.collect()
    for step in range(UNTIMED_STEPS):
        engine.run_steps(step, 1)
