"""Orders the configurations of a round, and chooses steps, rounds and memory groups. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")

STOPPING_CHECKS = (5, 10, 20, 40, 80)
"""Rounds of the first process run after which its margins of error are checked; fixed, to avoid bias."""

_BLOCK_SECONDS = 0.5
"""Seconds of a timing block: 30 steps of 16 ms, and short enough that interference affects all
configurations alike."""

_STEPS = (5, 200)
"""Minimum and maximum of timed steps in a timing block."""


def order_of_round(items: Sequence[Item], seed: int, process: int, number: int) -> list[Item]:
    """Return the items in this round's random order."""
    order = np.random.default_rng([seed, process, number]).permutation(len(items))
    return [items[index] for index in order]


def steps_per_round(step_seconds: Sequence[float], share: float, steps_in_epoch: int) -> int:
    """Return the timed steps of a timing block, the same for all configurations.

    Args:
        step_seconds: seconds of one step, one entry per configuration.
        share: seconds that one process run may take.
        steps_in_epoch: maximum before data repeats.
    """
    round_seconds = min(_BLOCK_SECONDS * len(step_seconds), share / STOPPING_CHECKS[0])
    fitting = int(round_seconds / sum(step_seconds))
    minimum, maximum = _STEPS
    return max(1, min(max(fitting, minimum), maximum, steps_in_epoch))


def max_rounds(round_seconds: float, share: float) -> int:
    """Return the rounds that one process run has time for, rounded down to a stopping check; at least 1."""
    fitting = max(1, int(share / round_seconds))
    return max([check for check in STOPPING_CHECKS if check <= fitting], default=fitting)


def groups(bytes_by_configuration: Mapping[Item, int], available: int) -> list[list[Item]]:
    """Group configurations whose workers fit into memory together, in order; one that never fits is alone."""
    grouped: list[list[Item]] = []
    used = 0
    for configuration, size in bytes_by_configuration.items():
        if grouped and used + size <= available:
            grouped[-1].append(configuration)
            used += size
        else:
            grouped.append([configuration])
            used = size
    return grouped
