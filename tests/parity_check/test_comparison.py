"""Tests of the errors of compared tensors."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from polybench.parity_check.comparison import State, timed_errors

TOLERANCE = {"loss": 1e-2, "gradient": 1e-2, "weight": 1e-6}


def cosine_error(actual: list[float], expected: list[float]) -> float | None:
    with tempfile.TemporaryDirectory() as name:
        states = []
        for file, values in (("actual", actual), ("expected", expected)):
            path = Path(name) / f"{file}.npz"
            np.savez(path, tensor=np.array(values))
            states.append(State(1.0, path, path))
        _, gradient = timed_errors("bf16", 0, *states, TOLERANCE)
    return gradient.relative_error


values = st.lists(st.floats(0.01, 10), min_size=3, max_size=3)


@given(values, st.floats(0.1, 10))
@example([1.0, 1.0, 8.532254765903293], 3.0)
def test_error_of_the_same_direction_is_not_negative(gradient: list[float], factor: float) -> None:
    error = cosine_error([factor * value for value in gradient], gradient)
    assert error is not None
    assert 0 <= error < 1e-15


def test_error_of_an_undefined_direction_is_none() -> None:
    assert cosine_error([float("nan"), 1.0], [1.0, 1.0]) is None
    assert cosine_error([0.0, 0.0], [1.0, 1.0]) is None
