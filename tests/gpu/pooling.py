"""Which value of a window a framework's max-pool gives its gradient to: found by experiment, on any device.

An engine declares the rule in `conventions()`. The exact one, the first maximum, needs no declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from polybench.engines.base import Array

Gradient = Callable[[Array, int, int], Array]
"""(images (batch, channels, height, width), window, stride) -> gradient of the sum of what comes out."""

_DISTANCES = 2.0 ** -np.arange(6, 25, dtype=np.float64)
"""Of a near-tie, relative to the maximum: from 1.6 % down to half of float32's last bit."""


class Rule(NamedTuple):
    """What was found.

    Attributes:
        ties: "first", "last", "all" (each of them gets all of it), "shared", or the places themselves.
        within: the largest relative distance below the maximum at which the first value gets it; 0 is none.
        overlapping: whether windows that overlap follow the same rule.
        repeatable: whether the same question has the same answer.
    """

    ties: str
    within: float
    overlapping: bool
    repeatable: bool

    @property
    def declaration(self) -> str:
        """What `conventions()` is to answer."""
        if self.ties == "first" and self.overlapping and self.repeatable:
            if not self.within:
                return "EXACT"
            return f"Conventions(max_pool_within={self.within:.2g}, sources={{...}})"
        return f"a rule that Conventions has no name for yet: {self}"


def rule_of(gradient: Gradient) -> Rule:
    """Look at ties and near-ties of windows of 2 x 2, and at windows of 3 x 3 that overlap."""
    tied = np.ones((1, 1, 2, 2), np.float32)
    once = gradient(tied, 2, 2)
    within = max((float(d) for d in _DISTANCES if _first_wins(gradient, d)), default=0.0)
    overlapped = np.ones((1, 1, 5, 5), np.float32)
    answers = [gradient(overlapped, 3, 2) for _ in range(5)]
    ties = _ties(once.ravel())
    places = {"first": (0, 2), "last": (2, 4)}.get(ties)
    expected = np.zeros((5, 5))
    if places is not None:
        expected[np.ix_(places, places)] = 1
    follows = places is not None and bool(np.array_equal(answers[0][0, 0], expected))
    repeatable = all(np.array_equal(answers[0], answer) for answer in answers[1:])
    return Rule(ties, within, follows, repeatable)


def _first_wins(gradient: Gradient, distance: float) -> bool:
    """Whether a value that is smaller by so much gets the gradient of a maximum that comes after it."""
    values = np.array([[1 - distance, 0.5], [1.0, 0.25]], np.float32)
    return values[0, 0] < 1 and bool(gradient(values[None, None], 2, 2)[0, 0, 0, 0] != 0)


def _ties(found: Array) -> str:
    """Of a window of four equal values."""
    for name, gets in (
        ("first", [1, 0, 0, 0]),
        ("last", [0, 0, 0, 1]),
        ("all", [1] * 4),
        ("shared", [0.25] * 4),
    ):
        if np.allclose(found, gets):
            return name
    return str(found.tolist())
