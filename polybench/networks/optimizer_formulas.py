"""The optimizers' formulas in NumPy, for one tensor at a time; `networks.optimizers` states them as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polybench.networks.optimizers import ADAM_BETAS, ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer

Array = NDArray[Any]

State = Mapping[str, Array]
"""State of an optimizer for one tensor between steps; empty before the first step, which means all zeros."""


def apply_update(
    optimizer: Optimizer, rate: float, w: Array, gradient: Array, state: State
) -> tuple[Array, dict[str, Array]]:
    """Return the weights and the optimizer's state after one step.

    Args:
        optimizer: the formula and its settings, except for the learning rate.
        rate: the learning rate of this step.
        w: weights, float64.
        gradient: of the loss, of the same shape.
        state: the state that the previous step returned.
    """
    g = gradient + optimizer.weight_decay * w
    mu = optimizer.momentum or 0.0
    zero = np.zeros(())
    match optimizer.name:
        case "sgd":
            return w - rate * g, {}
        case "momentum":
            v = mu * state.get("v", zero) + g
            return w - rate * v, {"v": v}
        case "nesterov":
            v = mu * state.get("v", zero) + g
            return w - rate * (g + mu * v), {"v": v}
        case "rmsprop":
            s = RMSPROP_DECAY * state.get("s", zero) + (1 - RMSPROP_DECAY) * g**2
            return w - rate * g / (np.sqrt(s) + RMSPROP_EPSILON), {"s": s}
        case "adam":
            beta1, beta2 = ADAM_BETAS
            t = state.get("t", zero) + 1
            m = beta1 * state.get("m", zero) + (1 - beta1) * g
            v = beta2 * state.get("v", zero) + (1 - beta2) * g**2
            unbiased_m, unbiased_v = m / (1 - beta1**t), v / (1 - beta2**t)
            return w - rate * unbiased_m / (np.sqrt(unbiased_v) + ADAM_EPSILON), {"t": t, "m": m, "v": v}
