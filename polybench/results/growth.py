"""Computes how much memory each training step adds to a process, and warns of a leak. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from polybench.schema import units
from polybench.schema.resources import Memory, MemoryInUse
from polybench.stats.statistics import student_interval

NOTABLE_GROWTH = 10_000
"""Bytes per step above which the whole interval must be for a warning: 1 GB in a training of 100,000 steps.

Caches of frameworks and of Python still grow after the warm-up, in every process alike, so an interval above 0 is not
evidence of a leak: docs/methodology.md, "Memory that grows".
"""


def add_growth(memory: Memory, in_use: Sequence[Sequence[MemoryInUse]]) -> Memory:
    """Add the growth of the memory in use to the record: the mean over processes, with a t interval.

    `in_use` has the readings of each process, of which those without any are left out.
    """
    growths = [growth_of_process(readings) for process in in_use for readings in process if len(readings.steps) > 1]
    if not growths:
        return memory
    interval = student_interval(growths)
    return msgspec.structs.replace(memory, growth_bytes_per_step=fmean(growths), growth_ci95=interval)


def growth_of_process(in_use: MemoryInUse) -> float:
    """Return the median of the bytes per step that are added from one reading to the next.

    A cache or a buffer that is allocated once, in the steps before one or two of five readings, does not change it.
    """
    pairs = pairwise(zip(in_use.steps, in_use.bytes, strict=True))
    return median((bytes_ - earlier) / (step - first) for (first, earlier), (step, bytes_) in pairs)


def growth_warnings(memory: Memory) -> Iterator[str]:
    """Warn if memory grows with every step beyond doubt; a single process has no interval, so it is never named."""
    growth, interval = memory.growth_bytes_per_step, memory.growth_ci95
    if growth is not None and interval is not None and interval[0] > NOTABLE_GROWTH:
        yield (
            f"memory grows by {units.format_bytes_with_ci(growth, interval)} with every step: something retains what"
            " each step creates, such as a loss with its graph"
        )
