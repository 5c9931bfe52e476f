"""Summarizes the kernel's counters of timing blocks and drops affected rounds. Pure.

A round is affected if other programs interfered with its timing block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from polybench.log import BlockTimed
from polybench.results.blocks import means_per_step
from polybench.schema import units
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.result import INTERFERENCE, Result, StepTime

NOTABLE_FAULT_FRACTION = 0.03
"""Fraction of a step spent in page faults from which polybench prints a warning."""

NOTABLE_THROTTLED_FRACTION = 0.01
"""Fraction of the CPU time of timing blocks that a quota may withhold without a warning."""


def summarize_interference(blocks: Sequence[Sequence[BlockTimed]]) -> Interference:
    """Summarize the counters of all timing blocks of a configuration, [process][round]."""
    counters = [[block.counters for block in process] for process in blocks]
    each = [block for process in counters for block in process]
    if not each:
        return Interference()
    return Interference(
        **means_per_step(Interference, blocks),
        blocks_rerun=sum(block.reruns > 0 for block in each),
        blocks_affected=sum(block.affected for block in each),
        blocks=counters,
    )


def page_fault_fraction(interference: Interference) -> float | None:
    """Return the largest possible fraction of a step spent in page faults; None if they were not counted."""
    blocks = [block for process in interference.blocks for block in process]
    seconds = sum(block.wall_seconds for block in blocks)
    return sum(block.page_fault_seconds for block in blocks) / seconds if seconds else None


def drop_affected_rounds(
    step_times: Sequence[Sequence[Sequence[float]]], counters: Sequence[Sequence[BlockCounters]]
) -> list[list[list[float]]]:
    """Return step times as [process][round][step], with empty lists for affected rounds.

    A process keeps all of its rounds if half of them or more are affected.
    """
    return [_unaffected_rounds(process, blocks) for process, blocks in zip_longest(step_times, counters, fillvalue=())]


def unaffected_step_times(result: Result) -> list[list[list[float]]]:
    """Return the step times for mean steps and ratios, as [process][round][step]."""
    return drop_affected_rounds(result.nested_step_times, result.interference.blocks)


def _unaffected_rounds(process: Sequence[Sequence[float]], blocks: Sequence[BlockCounters]) -> list[list[float]]:
    unaffected = [not block.affected for block in blocks]
    enough = len(unaffected) == len(process) and 2 * sum(unaffected) > len(unaffected)
    return [list(one_round) if not enough or unaffected[i] else [] for i, one_round in enumerate(process)]


def inconclusive_reason(*results: Result) -> str | None:
    """Return why a ratio of these results is inconclusive regardless of its interval; None if it is not."""
    for result in results:
        if result.interference.is_excessive:
            affected, blocks = result.interference.blocks_affected, sum(map(len, result.interference.blocks))
            return f"{INTERFERENCE} affected {affected} of {blocks} timing blocks of {result.configuration}"
    return None


def page_fault_warnings(
    interference: Interference, step_time: StepTime | None, variants: Sequence[str], malloc: str
) -> Iterator[str]:
    """Warn if page faults take a notable part of a step; the malloc policy determines the recommendation."""
    fraction = page_fault_fraction(interference) or 0.0
    if fraction <= NOTABLE_FAULT_FRACTION or step_time is None:
        return
    count = units.format_count(round(interference.minor_faults_per_step or 0))
    explanation = (
        "freed memory returns to the kernel between steps; try --malloc retain"
        if malloc == "system" or "system_malloc" in variants
        else "the engine or its allocator returns memory to the kernel"
    )
    cost = f"{units.format_seconds(fraction * step_time.mean)} ({units.format_percent(fraction)})"
    yield f"page faults: {count} per step take up to {cost}; {explanation}"


def throttling_warnings(interference: Interference) -> Iterator[str]:
    """Warn if the CPU quota of a container stopped the worker for a notable part of its timing blocks."""
    blocks = [block for process in interference.blocks for block in process]
    throttled = sum(block.throttled_seconds or 0.0 for block in blocks)
    busy = sum(block.cpu_seconds for block in blocks)
    if throttled > NOTABLE_THROTTLED_FRACTION * (throttled + busy):
        yield (
            f"the CPU quota of this container stopped the worker for {units.format_seconds(throttled)} of its"
            " timing blocks; raise the quota, or use fewer --threads"
        )
