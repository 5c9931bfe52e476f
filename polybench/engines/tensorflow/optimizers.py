"""Keras's optimizers, brought to the canonical formulas. Imported where TensorFlow is.

Keras 3.15 computes something else in five places:

- `SGD` keeps V = -rate v: the same weights, as long as the rate stays. Where it changes, V is rescaled here.
- `Adam` adds epsilon to the root of v before the bias correction: that is an epsilon 32 times as large in the
  first step. It takes 1 - 0.999^t in the weights' own type, which in float32 is 5e-5 off in the first step.
- `RMSprop` adds epsilon under the root.
- `weight_decay` shrinks the weights beside the update instead of adding to the gradient.
- A plain float goes through float32, even where the weights are float64; `np.float64` does not.

`SGD(nesterov=True)` is the canonical form. Formulas written here use TensorFlow's own operations, which take
a plain float in the type of the other operand.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from polybench.core.optimizers import ADAM_BETAS, ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer


class Adam(keras.optimizers.Adam):  # type: ignore[misc]
    """Epsilon is added to the root of the bias-corrected v; the corrections are float64 scalars."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        m, v = self._momentums[index].value, self._velocities[index].value
        m.assign(self.beta_1 * m + (1 - self.beta_1) * gradient)
        v.assign(self.beta_2 * v + (1 - self.beta_2) * tf.square(gradient))
        t = tf.cast(self.iterations + 1, tf.float64)
        correction_1, correction_2 = (
            tf.cast(1 - beta**t, variable.dtype) for beta in (self.beta_1, self.beta_2)
        )
        rate = tf.cast(learning_rate, variable.dtype)
        variable.assign_sub(rate * (m / correction_1) / (tf.sqrt(v / correction_2) + self.epsilon))


class RMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """Epsilon is added to the root."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        s = self._velocities[self._get_variable_index(variable)].value
        s.assign(self.rho * s + (1 - self.rho) * tf.square(gradient))
        rate = tf.cast(learning_rate, variable.dtype)
        variable.assign_sub(rate * gradient / (tf.sqrt(s) + self.epsilon))


class _L2:
    """Before an optimizer's own class: adds `l2` times the weights to the gradient."""

    l2: float

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(gradient + self.l2 * variable, variable, learning_rate)  # type: ignore[misc]


class CanonicalOptimizer:
    """A Keras optimizer that computes the canonical formula, and what training changes in it.

    `keras` is what `apply_gradients` is called on; it is of Keras's own class where that has the formula.
    """

    def __init__(self, optimizer: Optimizer, variables: list[Any]) -> None:
        self._rate = optimizer.learning_rate
        self.keras = _keras_optimizer(optimizer)
        self.keras.build(variables)

    def reset(self) -> None:
        """Zero state and step counter; not the learning rate, which is among the variables as well."""
        for variable in self.keras.variables:
            if variable is not self.keras.learning_rate:
                variable.assign(np.zeros(variable.shape))

    def set_rate(self, rate: float) -> None:
        """The rate from the next step on; nothing is done where it is the rate already."""
        if rate == self._rate:
            return
        self.keras.learning_rate = np.float64(rate)
        if isinstance(self.keras, keras.optimizers.SGD):
            for velocity in self.keras.momentums:  # which have the rate as a factor
                velocity.assign(velocity.numpy() * (rate / self._rate))
        self._rate = rate


def _keras_optimizer(optimizer: Optimizer) -> Any:
    kind: type
    settings: dict[str, Any]
    match optimizer.name:
        case "adam":
            beta_1, beta_2 = ADAM_BETAS
            kind, settings = Adam, {"beta_1": beta_1, "beta_2": beta_2, "epsilon": ADAM_EPSILON}
        case "rmsprop":
            kind, settings = RMSprop, {"rho": RMSPROP_DECAY, "epsilon": RMSPROP_EPSILON}
        case "sgd" | "momentum" | "nesterov":
            momentum = np.float64(optimizer.momentum or 0.0)
            kind = keras.optimizers.SGD
            settings = {"momentum": momentum, "nesterov": optimizer.name == "nesterov"}
    if optimizer.weight_decay:
        kind = type(kind.__name__, (_L2, kind), {"l2": optimizer.weight_decay})
    return kind(learning_rate=np.float64(optimizer.learning_rate), **settings)
