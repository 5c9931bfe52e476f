"""Experiments that find out how a framework computes, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

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


def check_max_pool_rule(gradient: Gradient) -> str:
    """Check that the first maximum of a window gets the gradient, which needs no declaration."""
    tied = gradient(np.ones((1, 1, 2, 2), np.float32), 2, 2).ravel().tolist()
    assert tied == [1, 0, 0, 0], f"four equal values get {tied}: NumericalConventions has no name for this rule"
    first = np.zeros((5, 5))
    first[np.ix_((0, 2), (0, 2))] = 1
    for _ in range(5):
        overlapping = gradient(np.ones((1, 1, 5, 5), np.float32), 3, 2)[0, 0]
        assert np.array_equal(overlapping, first), f"equal values of overlapping windows get {overlapping}"
    within = max((float(distance) for distance in _DISTANCES if _first_wins(gradient, distance)), default=0.0)
    assert not within, f"declare NumericalConventions(max_pool_within={within:.2g}, sources={{...}})"
    return "the first maximum"


def _first_wins(gradient: Gradient, distance: float) -> bool:
    """True if a slightly smaller value gets the gradient of a maximum after it."""
    values = np.array([[1 - distance, 0.5], [1.0, 0.25]], np.float32)
    return values[0, 0] < 1 and bool(gradient(values[None, None], 2, 2)[0, 0, 0, 0] != 0)
