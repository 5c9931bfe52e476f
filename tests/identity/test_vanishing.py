"""Gradients that are exactly zero, and where rounding leads their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.core.optimizer_formulas import Array, State, updated
from polybench.core.optimizers import OPTIMIZERS, Optimizer
from polybench.identity.vanishing import strides, vanishing


def written(folder: Path, name: str, **gradients: list[float]) -> Path:
    arrays: dict[str, Any] = {tensor: np.array(values) for tensor, values in gradients.items()}
    np.savez(folder / name, **arrays)
    return folder / f"{name}.npz"


def test_what_is_no_larger_than_its_error_everywhere_vanishes(tmp_path: Path) -> None:
    first = written(tmp_path, "first", w=[3.0, 4.0], bias=[1e-15, 0.0], dead=[0.0], small=[1e-9])
    second = written(tmp_path, "second", w=[0.3, 0.4], bias=[0.0, 1e-15], dead=[1e-3], small=[1e-9])
    assert vanishing([first, second], 1e-7) == {"bias"}
    assert vanishing([first], 1e-7) == {"bias", "dead"}
    assert vanishing([first, second], 1e-10) == set()
    assert vanishing([], 1e-7) == set()


def reached(optimizer: Optimizer, gradients: list[Array]) -> Array:
    """The weights from which two steps of an optimizer lead, and those after each."""
    w, found = np.zeros(gradients[0].shape), []
    state: State = {}
    for step, gradient in enumerate(gradients):
        w, state = updated(optimizer, optimizer.rate_at(step), w, gradient, state)
        found.append(w)
    return np.array(found)


@given(
    name=st.sampled_from(sorted(OPTIMIZERS)),
    error=st.floats(-16, 0).map(lambda exponent: 10**exponent),
    size=st.integers(1, 6),
    steps=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_two_roundings_are_led_farther_apart(
    name: Any, error: float, size: int, steps: int, seed: int
) -> None:
    random = np.random.default_rng(seed)

    def rounding() -> Array:
        noise = random.standard_normal(size) ** 3  # a few values have most of it
        return np.asarray(error * noise / np.linalg.norm(noise))

    optimizer = Optimizer(name, 0.01)
    one, other = (reached(optimizer, [rounding() for _ in range(steps)]) for _ in range(2))
    apart = strides(optimizer, steps, error, size)
    assert len(apart) == steps
    assert np.linalg.norm(one[-1] - other[-1]) <= sum(apart) * (1 + 1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_opposite_errors_are_led_that_far(name: Any) -> None:
    optimizer = Optimizer(name, 0.01)
    error = np.full(4, 0.5e-9)
    one, other = (reached(optimizer, [sign * error] * 3) for sign in (1, -1))
    assert np.linalg.norm(one[-1] - other[-1]) == pytest.approx(sum(strides(optimizer, 3, 1e-9, 4)))


def test_adam_leads_rounding_of_any_size_by_its_rate_at_most() -> None:
    adam = Optimizer("adam", 0.01)
    assert max(strides(adam, 3, 1.0, 1)) == pytest.approx(2 * 0.01, rel=1e-6)
    assert max(strides(adam, 3, 1e-15, 1)) == pytest.approx(2 * 0.01 * 1e-15 / 1e-8, rel=1e-6)
