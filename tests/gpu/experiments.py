"""Experiments that find out how a framework computes, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from polybench.engines.base import Array

SHAPES = {"product": ((2048, 2048), (2048, 2048)), "convolution": ((32, 64, 32, 32), (64, 64, 3, 3))}


class Operation(Protocol):
    """Function that computes on the GPU from float32 arrays of SHAPES and returns float64."""

    def __call__(self, dtype: str, tf32: bool, /, *given: Array) -> Array: ...


def errors_without_and_with_tf32(**operations: Operation) -> str:
    """Compare the errors against float64, without and with TensorFloat-32.

    TensorFloat-32 has 10 bits of mantissa, float32 has 23; half of its last bit is 4.9e-4.
    """
    errors = []
    for name, operation in operations.items():
        random = np.random.default_rng(0)
        given = [random.standard_normal(shape, np.float32) for shape in SHAPES[name]]
        exact = operation("float64", False, *given)
        off, on = (
            float(np.linalg.norm(operation("float32", tf32, *given) - exact) / np.linalg.norm(exact))
            for tf32 in (False, True)
        )
        assert off < 2e-5, f"{name}: error {off:.1e} where TensorFloat-32 is off"
        assert 5e-5 < on < 5e-3, f"{name}: error {on:.1e} where TensorFloat-32 is on"
        errors.append(f"{name}: error {off:.1e} without, {on:.1e} with")
    return "; ".join(errors)


Gradient = Callable[[Array, int, int], Array]
"""Function from (images (batch, channels, height, width), window, stride) to the gradient of the sum of all outputs."""

_DISTANCES = 2.0 ** -np.arange(6, 25, dtype=np.float64)
"""Near-ties relative to the maximum: from 1.6 % down to half of float32's last bit."""


class Rule(NamedTuple):
    """Find out which value of a window gets the gradient of a max pooling.

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


def check_max_pool_rule(gradient: Gradient) -> str:
    """Check that the first maximum gets the gradient, which needs no declaration; return the rule."""
    rule = _max_pool_rule(gradient)
    if rule.ties == "first" and rule.overlapping and rule.repeatable:
        declaration = f"Conventions(max_pool_within={rule.within:.2g}, sources={{...}})"
    else:
        declaration = "a rule that Conventions has no name for yet"
    assert rule == Rule("first", 0.0, True, True), f"{rule}: declare {declaration}"
    return f"{rule}, so EXACT"


def _max_pool_rule(gradient: Gradient) -> Rule:
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
    for name, gets in (("first", [1, 0, 0, 0]), ("last", [0, 0, 0, 1]), ("all", [1] * 4), ("shared", [0.25] * 4)):
        if np.allclose(found, gets):
            return name
    return str(found.tolist())
