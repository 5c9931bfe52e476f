"""What the kernel counted during blocks -> a row's disturbance, and what is worth saying of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core import units
from polybench.core.document.resources import Disturbance
from polybench.core.document.result import Result
from polybench.core.spec import UNTIMED_STEPS
from polybench.machine.meters.usage import BlockUsage

NOTABLE_SHARE = 0.03
"""Of a step, in page faults: less than this is no reason to change anything."""


def add_disturbance(result: Result, blocks: Sequence[BlockUsage], heap: str) -> None:
    """Fill in what was counted of a measured cell.

    Args:
        result: with its samples.
        blocks: what was seen of each of its blocks.
        heap: the study's policy, for the advice.
    """
    samples = result.samples
    seen = [block.kernel for block in blocks if block.kernel is not None]
    if samples is None or not seen:
        return
    timed = sum(len(one_round) for process in samples.step_seconds for one_round in process)
    steps = timed * samples.steps_per_sample + UNTIMED_STEPS * len(blocks)
    delays = [use.run_delay_seconds for use in seen]
    result.disturbance = Disturbance(
        run_delay_seconds_per_step=None
        if None in delays
        else sum(delay for delay in delays if delay is not None) / steps,
        minor_faults_per_step=sum(use.minor_faults for use in seen) / steps,
        major_faults_per_step=sum(use.major_faults for use in seen) / steps,
        voluntary_switches_per_step=sum(use.voluntary_switches for use in seen) / steps,
        involuntary_switches_per_step=sum(use.involuntary_switches for use in seen) / steps,
    )
    share = sum(block.fault_seconds for block in blocks) / sum(block.wall_seconds for block in blocks)
    if share > NOTABLE_SHARE and result.step_seconds is not None:
        result.warnings.append(_page_faults(result, share * result.step_seconds.median, share, heap))


def _page_faults(result: Result, seconds: float, share: float, heap: str) -> str:
    count = units.count(round(result.disturbance.minor_faults_per_step or 0))
    advice = (
        "what is freed goes back to the kernel between steps; --heap keep has it stay"
        if heap == "system" or "systemheap" in (result.variant or "")
        else "the engine or its allocator gives memory back by itself"
    )
    cost = f"up to {units.seconds(seconds)} of it ({units.percent(share)})"
    return f"page faults: {count} a step, {cost}; {advice}"
