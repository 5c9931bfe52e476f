"""Tests of zero gradients, and of the drift of weights by rounding errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.networks.optimizers import OPTIMIZERS, Array, Optimizer, State, apply_update
from polybench.parity_check.zero_gradients import find_zero_gradients, max_drift


def write_gradients(folder: Path, name: str, **gradients: list[float]) -> Path:
    arrays: dict[str, Any] = {tensor: np.array(values) for tensor, values in gradients.items()}
    np.savez(folder / name, **arrays)
    return folder / f"{name}.npz"


def test_gradient_within_its_tolerance_in_every_file_is_zero(tmp_path: Path) -> None:
    first = write_gradients(tmp_path, "first", w=[3.0, 4.0], bias=[1e-15, 0.0], dead=[0.0], small=[1e-9])
    second = write_gradients(tmp_path, "second", w=[0.3, 0.4], bias=[0.0, 1e-15], dead=[1e-3], small=[1e-9])
    assert find_zero_gradients([first, second], 1e-7) == {"bias"}
    assert find_zero_gradients([first], 1e-7) == {"bias", "dead"}
    assert find_zero_gradients([first, second], 1e-10) == set()
    assert find_zero_gradients([], 1e-7) == set()


def weights_after_steps(optimizer: Optimizer, gradients: list[Array]) -> Array:
    """Return the weights after each step of an optimizer that starts from zero."""
    w, weights = np.zeros(gradients[0].shape), []
    state: State = {}
    for step, gradient in enumerate(gradients):
        w, state = apply_update(optimizer, optimizer.learning_rate_at(step), w, gradient, state)
        weights.append(w)
    return np.array(weights)


@given(
    name=st.sampled_from(sorted(OPTIMIZERS)),
    error=st.floats(-16, 0).map(lambda exponent: 10**exponent),
    size=st.integers(1, 6),
    steps=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_errors_never_exceed_the_maximum_drift(
    name: Any, error: float, size: int, steps: int, seed: int
) -> None:
    random = np.random.default_rng(seed)

    def rounding() -> Array:
        noise = random.standard_normal(size) ** 3  # a few values dominate
        return np.asarray(error * noise / np.linalg.norm(noise))

    optimizer = Optimizer(name, 0.01)
    first, second = (weights_after_steps(optimizer, [rounding() for _ in range(steps)]) for _ in range(2))
    drift = max_drift(optimizer, steps, error, size)
    assert len(drift) == steps
    assert np.linalg.norm(first[-1] - second[-1]) <= sum(drift) * (1 + 1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_opposite_errors_reach_the_maximum_drift(name: Any) -> None:
    optimizer = Optimizer(name, 0.01)
    error = np.full(4, 0.5e-9)
    first, second = (weights_after_steps(optimizer, [sign * error] * 3) for sign in (1, -1))
    assert np.linalg.norm(first[-1] - second[-1]) == pytest.approx(sum(max_drift(optimizer, 3, 1e-9, 4)))


def test_drift_with_adam_is_limited_by_the_learning_rate() -> None:
    adam = Optimizer("adam", 0.01)
    assert max(max_drift(adam, 3, 1.0, 1)) == pytest.approx(2 * 0.01, rel=1e-6)
    assert max(max_drift(adam, 3, 1e-15, 1)) == pytest.approx(2 * 0.01 * 1e-15 / 1e-8, rel=1e-6)
