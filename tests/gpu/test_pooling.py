"""The experiment finds known rules."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.base import Array
from polybench.engines.reference.conv_pool import max_pool
from tests.gpu.pooling import Gradient, rule_of


def reference(within: float) -> Gradient:
    def gradient(x: Array, size: int, stride: int) -> Array:
        y, backward = max_pool(x.astype(np.float64), size, stride, within)
        return backward(np.ones_like(y))[0]

    return gradient


def mirrored(x: Array, size: int, stride: int) -> Array:
    """The gradient goes to the last maximum: the rule of the first on a reversed image."""
    return reference(0)(x[..., ::-1, ::-1], size, stride)[..., ::-1, ::-1]


def test_the_exact_rule_needs_no_declaration() -> None:
    found = rule_of(reference(0))
    assert (found.ties, found.within, found.overlapping) == ("first", 0.0, True)
    assert found.declaration == "EXACT"


@pytest.mark.parametrize("within", [3.45e-4, 1e-5])
def test_a_near_tie_rule_is_found_with_its_distance(within: float) -> None:
    found = rule_of(reference(within))
    assert within / 2 < found.within <= within
    assert found.declaration.startswith(f"Conventions(max_pool_within={found.within:.2g}")


def test_any_other_rule_is_reported() -> None:
    found = rule_of(mirrored)
    assert (found.ties, found.overlapping) == ("last", True)
    assert "no name for yet" in found.declaration
    shared = rule_of(lambda x, size, stride: np.full(x.shape, 1 / size**2))
    assert (shared.ties, shared.overlapping) == ("shared", False)


def test_a_changing_result_is_reported() -> None:
    random = np.random.default_rng(0)
    found = rule_of(lambda x, *rest: reference(0)(x, *rest) + (x.shape[-1] == 5) * random.random(x.shape))
    assert not found.repeatable
    assert "no name for yet" in found.declaration
