"""What `julia/src/kept_training.jl` keeps of a training, as arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from polybench.engines.base import Weights


def training_state(kept: Any) -> Weights:
    """Copies of Julia's `KeptTraining`."""
    numbers, generator = np.array(kept.numbers), np.array(kept.generator)
    return {"numbers": numbers, "rate": np.array(float(kept.rate)), "generator": generator}


def crossing(state: Weights) -> tuple[int, int, float, int]:
    """The arguments of `go_on_from!` behind the trainer; the arrays must outlive its call."""
    numbers, generator = state["numbers"], state["generator"]
    return numbers.ctypes.data, len(numbers), float(state["rate"]), generator.ctypes.data
