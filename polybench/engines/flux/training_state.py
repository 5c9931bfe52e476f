"""Converts the training state of `julia/src/training_state.jl` to arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from polybench.engines.base import Weights


def training_state(saved: Any) -> Weights:
    """Copy Julia's `TrainingState`."""
    numbers, generator = np.array(saved.numbers), np.array(saved.generator)
    return {"numbers": numbers, "rate": np.array(float(saved.rate)), "generator": generator}


def to_julia_state(state: Weights) -> tuple[int, int, float, int]:
    """Return the arguments of Julia's `restore!` after the trainer; the arrays must outlive the call."""
    numbers, generator = state["numbers"], state["generator"]
    return numbers.ctypes.data, len(numbers), float(state["rate"]), generator.ctypes.data
