"""Gradients that are exactly zero: what rounding leaves of them, and what an optimizer makes of that.

A bias right before batch norm has such a gradient, since batch norm takes away what it adds. What is computed
is the rounding of a sum that cancels, in each engine another one, and Adam and RMSprop divide it by its own
size. So it can be asked that such a gradient is as small as rounding, and that the weights are no further
apart than an optimizer leads them that is given nothing but rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from polybench.core.optimizer_formulas import State, updated
from polybench.core.optimizers import Optimizer

GRADIENT_FLOOR = 1e-6
"""A gradient can be small beside the others: its error is then in relation to this part of all their norm."""

CANCELLED = 1e-3
"""The same in the timed configuration, of a gradient that is zero. Float32 leaves 1e-6 of the norm of all
gradients where a convolution's bias adds up 65,536 terms before batch norm; 5e-2 of this, 50 times as much,
is allowed. Adam and RMSprop make whole strides of that: there an update of such weights is hardly checked,
which float64 does, and which cannot change the loss."""


def total_norm(gradients: Path) -> float:
    """Of all gradients of a file."""
    with np.load(gradients) as file:
        return math.sqrt(sum(float(np.vdot(value, value)) for value in (file[name] for name in file.files)))


def vanishing(gradients: Iterable[Path], tolerance: float) -> frozenset[str]:
    """The tensors whose gradient is in each of these files no larger than the error that it may have.

    Args:
        gradients: of the reference in float64, under the exact rules of batch norm's sums.
        tolerance: of a gradient there.
    """
    found = []
    for path in gradients:
        allowed = tolerance * GRADIENT_FLOOR * total_norm(path)
        with np.load(path) as file:
            found.append({name for name in file.files if np.linalg.norm(file[name].ravel()) <= allowed})
    return frozenset(set.intersection(*found)) if found else frozenset()


def strides(optimizer: Optimizer, steps: int, error: float, size: int) -> list[float]:
    """How far apart each step may lead two tensors whose gradients are nothing but errors.

    Args:
        optimizer: what makes weights of them.
        steps: how many it makes, from its first.
        error: the norm of each gradient, the same in each value and each step. In one step that leads
            farthest; errors that grow from step to step lead a little farther where they are above epsilon.
        size: how many values there are.
    """
    w, gradient = np.zeros(()), np.array(error / math.sqrt(size))
    state: State = {}
    found = []
    for step in range(steps):
        before, (w, state) = w, updated(optimizer, optimizer.rate_at(step), w, gradient, state)
        found.append(2 * math.sqrt(size) * abs(float(w - before)))  # in opposite directions
    return found
