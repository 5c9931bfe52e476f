"""Study -> ordered rounds: who is measured when, how long a block is, when it is enough. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")

LOOKS = (5, 10, 20, 40, 80)
"""Rounds of the first replicate after which the width of its intervals is looked at, and at no others."""

_BLOCK_SECONDS = 0.5
"""A cell's share of a round: 30 steps of 16 ms, and short enough that noise hits all cells alike."""

_STEPS = (5, 200)
"""The fewest and the most timed steps of a block."""


def order_of_round(items: Sequence[Item], seed: int, process: int, number: int) -> list[Item]:
    """The items in this round's random order."""
    order = np.random.default_rng([seed, process, number]).permutation(len(items))
    return [items[index] for index in order]


def steps_per_round(step_seconds: Sequence[float], share: float, steps_in_epoch: int) -> int:
    """How many steps every cell times in a block: the same for all.

    Args:
        step_seconds: seconds of one step, one entry a cell.
        share: seconds that one replicate may be timed for.
        steps_in_epoch: the most that can be taken before data repeats.
    """
    round_seconds = min(_BLOCK_SECONDS * len(step_seconds), share / LOOKS[0])
    fitting = int(round_seconds / sum(step_seconds))
    fewest, most = _STEPS
    return max(1, min(max(fitting, fewest), most, steps_in_epoch))


def rounds_that_fit(round_seconds: float, share: float) -> int:
    """How many rounds one replicate has time for: a look's number if it reaches one, at least 1."""
    fitting = max(1, int(share / round_seconds))
    return max([look for look in LOOKS if look <= fitting], default=fitting)


def groups(bytes_by_cell: Mapping[Item, int], available: int) -> list[list[Item]]:
    """Cells whose workers fit in memory together, in order; a cell that never fits stands alone."""
    grouped: list[list[Item]] = []
    used = 0
    for cell, size in bytes_by_cell.items():
        if grouped and used + size <= available:
            grouped[-1].append(cell)
            used += size
        else:
            grouped.append([cell])
            used = size
    return grouped
