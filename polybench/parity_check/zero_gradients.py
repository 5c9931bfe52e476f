"""Tolerances for gradients that are mathematically zero.

A bias right before batch norm has a zero gradient, because batch norm subtracts the bias again. Engines
compute the rounding error of a cancelling sum instead, each a different one. Adam and RMSprop divide a
gradient by its own magnitude and turn such rounding errors into full updates. The parity check therefore
requires that the gradient is as small as rounding errors, and that the weights differ by no more than an
optimizer can make of rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from polybench.networks.optimizers import Optimizer, State, apply_update

GRADIENT_FLOOR = 1e-6
"""Minimum scale of a gradient's error, as a fraction of the norm of all gradients."""

BENCHMARK_ZERO_FLOOR = 1e-3
"""Minimum scale of a zero gradient's error at the benchmark precision, relative to the norm of all gradients.

Float32 leaves 1e-6 of this norm if the bias of a convolution sums 65,536 terms before batch norm. The
tolerance is 5e-2 of this floor, so 5e-5 of the norm: 50 times those rounding errors. Adam and RMSprop make
full updates of such gradients, so the part at the benchmark precision hardly checks these updates. They
cannot change the loss, and the float64 part checks them."""


def total_norm(gradients: Path) -> float:
    """Return the norm of all gradients in a file."""
    with np.load(gradients) as file:
        return math.sqrt(sum(float(np.vdot(value, value)) for value in (file[name] for name in file.files)))


def find_zero_gradients(gradients: Iterable[Path], tolerance: float) -> frozenset[str]:
    """Return the names of the tensors whose gradient is within the tolerance of zero in each file.

    Args:
        gradients: files of the float64 reference, under the exact rules of batch norm's sums.
        tolerance: of a gradient in float64.
    """
    zero_names = []
    for path in gradients:
        max_norm = tolerance * GRADIENT_FLOOR * total_norm(path)
        with np.load(path) as file:
            zero_names.append({name for name in file.files if np.linalg.norm(file[name].ravel()) <= max_norm})
    return frozenset(set.intersection(*zero_names)) if zero_names else frozenset()


def max_drift(optimizer: Optimizer, steps: int, error: float, size: int) -> list[float]:
    """Return how far each step can move apart two tensors whose gradients are rounding errors.

    Args:
        optimizer: the optimizer.
        steps: number of steps from the start of the training.
        error: norm of each gradient, spread evenly over all values and equal in all steps. For one step, an
            even spread is the worst case. Errors that grow from step to step and exceed the optimizer's
            epsilon can exceed the bound slightly.
        size: number of values in the tensor.
    """
    w, gradient = np.zeros(()), np.array(error / math.sqrt(size))
    state: State = {}
    drifts = []
    for step in range(steps):
        before, (w, state) = w, apply_update(optimizer, optimizer.learning_rate_at(step), w, gradient, state)
        drifts.append(2 * math.sqrt(size) * abs(float(w - before)))  # in opposite directions
    return drifts
