"""Tests of the errors of compared tensors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polybench.data.batch_files import open_epoch
from polybench.networks.optimizers import OPTIMIZERS, Array, Optimizer, apply_update
from polybench.networks.optimizers import State as OptimizerState
from polybench.parity_check.comparison import (
    State,
    batch_errors,
    correct_errors,
    find_zero_gradients,
    max_drift,
    timed_errors,
    write_chosen_labels,
)
from tests import small_datasets

TOLERANCE = {"loss": 1e-2, "gradient": 1e-2, "size": 1e-2, "tensor size": 1e-2, "weight": 1e-6}


def whole_gradient_errors(actual: list[float], expected: list[float]) -> dict[str, float | None]:
    """Return the errors of direction ("gradient") and size."""
    with tempfile.TemporaryDirectory() as name:
        states = []
        for file, values in (("actual", actual), ("expected", expected)):
            path = Path(name) / f"{file}.npz"
            np.savez(path, tensor=np.array(values))
            states.append(State(1.0, path, path))
        _, *errors = timed_errors("bf16", 0, *states, TOLERANCE)
    return {error.kind: error.relative_error for error in errors if error.name == "whole gradient"}


values = st.lists(st.floats(0.01, 10), min_size=3, max_size=3)


@given(values, st.floats(0.1, 10))
@example([1.0, 1.0, 8.532254765903293], 3.0)
def test_scaled_gradient_has_the_same_direction_and_another_size(gradient: list[float], factor: float) -> None:
    errors = whole_gradient_errors([factor * value for value in gradient], gradient)
    direction = errors["gradient"]
    assert direction is not None
    assert 0 <= direction < 1e-15
    assert errors["size"] == pytest.approx(abs(factor - 1), abs=1e-12)


def test_error_of_an_undefined_direction_is_none() -> None:
    assert whole_gradient_errors([float("nan"), 1.0], [1.0, 1.0]) == {"gradient": None, "size": None}
    assert whole_gradient_errors([0.0, 0.0], [1.0, 1.0]) == {"gradient": None, "size": 1}
    assert whole_gradient_errors([1.0, 1.0], [0.0, 0.0]) == {"gradient": None, "size": None}


def test_rounding_cannot_change_the_count_of_correct_predictions(tmp_path: Path) -> None:
    logits = np.tile([0.1, 1.0, 0.2], (16, 1))
    logits[::4] = [0.1, 1.0, 0.999]
    np.savez(tmp_path / "logits.npz", logits=logits)
    epoch = small_datasets.files(tmp_path).epoch
    labelled = write_chosen_labels(epoch, tmp_path / "logits.npz", tmp_path / "chosen")
    labels = np.fromfile(tmp_path / "chosen", np.int64)
    assert (labelled.steps, labelled.batch_size) == (1, 16)
    assert set(labels[::4]) == {0}
    rounded = np.where(np.arange(16) % 4 == 0, 2, 1)
    for predicted, passes in ((rounded, True), (np.where(np.arange(16) == 1, 0, rounded), False)):
        (error,) = correct_errors(tmp_path / "logits.npz", labelled, float((predicted == labels).mean()))
        assert error.passed == passes


def test_a_pixel_may_differ_by_a_rounding_but_not_by_a_grey_level(tmp_path: Path) -> None:
    epoch = small_datasets.files(tmp_path).epoch
    images, labels = (array[0].copy() for array in open_epoch(epoch))
    actual = tmp_path / "batch.npz"

    def passed() -> list[bool]:
        np.savez(actual, images=images, labels=labels)
        return [one.passed for one in batch_errors(0, actual, epoch)]

    images[3, 2, 1, 0] = np.nextafter(images[3, 2, 1, 0], 2)
    assert passed() == [True, True]
    images[3, 2, 1, 0] += 1 / 255
    labels[7] += 1
    assert passed() == [False, False]


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
    state: OptimizerState = {}
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
    drift = max_drift(optimizer, [0.01] * steps, error, size)
    assert len(drift) == steps
    assert np.linalg.norm(first[-1] - second[-1]) <= sum(drift) * (1 + 1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_opposite_errors_reach_the_maximum_drift(name: Any) -> None:
    optimizer = Optimizer(name, 0.01)
    error = np.full(4, 0.5e-9)
    first, second = (weights_after_steps(optimizer, [sign * error] * 3) for sign in (1, -1))
    assert np.linalg.norm(first[-1] - second[-1]) == pytest.approx(sum(max_drift(optimizer, [0.01] * 3, 1e-9, 4)))


def test_drift_with_adam_is_limited_by_the_learning_rate() -> None:
    adam = Optimizer("adam", 0.01)
    assert max(max_drift(adam, [0.01] * 3, 1.0, 1)) == pytest.approx(2 * 0.01, rel=1e-6)
    assert max(max_drift(adam, [0.01] * 3, 1e-15, 1)) == pytest.approx(2 * 0.01 * 1e-15 / 1e-8, rel=1e-6)
