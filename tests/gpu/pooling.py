"""Finds out by experiments which value of a window gets the gradient of a framework's max pooling, on any device.

An engine declares the rule in `conventions()`. The exact rule, the first maximum, needs no declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from polybench.engines.base import Array

Gradient = Callable[[Array, int, int], Array]
"""Function from (images (batch, channels, height, width), window, stride) to the gradient of the sum of all outputs."""

_DISTANCES = 2.0 ** -np.arange(6, 25, dtype=np.float64)
"""Near-ties relative to the maximum: from 1.6 % down to half of float32's last bit."""


class Rule(NamedTuple):
    """The rule that was found.

    Attributes:
        ties: "first", "last", "all" (each gets the whole gradient), "shared", or the positions.
        within: the largest relative distance below the maximum at which the first value gets it; 0 for none.
        overlapping: true if overlapping windows follow the same rule.
        repeatable: true if repeated calls have the same result.
    """

    ties: str
    within: float
    overlapping: bool
    repeatable: bool

    @property
    def declaration(self) -> str:
        """The return value of `conventions()` that declares this rule."""
        if self.ties == "first" and self.overlapping and self.repeatable:
            if not self.within:
                return "EXACT"
            return f"Conventions(max_pool_within={self.within:.2g}, sources={{...}})"
        return f"a rule that Conventions has no name for yet: {self}"


def rule_of(gradient: Gradient) -> Rule:
    """Test ties and near-ties in windows of 2 x 2, and overlapping windows of 3 x 3."""
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
    """True if a slightly smaller value gets the gradient of a maximum after it."""
    values = np.array([[1 - distance, 0.5], [1.0, 0.25]], np.float32)
    return values[0, 0] < 1 and bool(gradient(values[None, None], 2, 2)[0, 0, 0, 0] != 0)


def _ties(found: Array) -> str:
    """Return the rule for a window of four equal values."""
    for name, gets in (
        ("first", [1, 0, 0, 0]),
        ("last", [0, 0, 0, 1]),
        ("all", [1] * 4),
        ("shared", [0.25] * 4),
    ):
        if np.allclose(found, gets):
            return name
    return str(found.tolist())
