"""Keras's optimizers, brought to the canonical formulas. Imported where Keras is.

Keras 3.15 computes something else in six places:

- `SGD` keeps V = -rate v: the same weights, as long as the rate stays. Where it changes, V is rescaled here.
- `Adam` adds epsilon to the root of v before the bias correction: that is an epsilon 32 times as large in the
  first step. It takes 1 - 0.999^t in the weights' own type, which in float32 is 5e-5 off in the first step.
- `RMSprop` adds epsilon under the root.
- `weight_decay` shrinks the weights beside the update instead of adding to the gradient.
- `Adam` and `RMSprop` on TensorFlow, of an embedding whose row a batch takes several times, add up the
  squares of its gradients and not the gradients (docs/upstream/keras_embedding_adam.py).
- A plain float goes through float32, even where the weights are float64; `np.float64` does not.

`SGD(nesterov=True)` is the canonical form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from polybench.core.optimizers import ADAM_BETAS, ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer
from polybench.engines.base import Array


class Adam(keras.optimizers.Adam):  # type: ignore[misc]
    """Epsilon is added to the root of the bias-corrected v; the corrections have all their digits.

    Both corrections go into the rate and epsilon, which are numbers: a large embedding is gone through as
    often as by Keras's own.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        gradient = _dense(gradient)
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        correction_1, correction_2 = corrections(self)
        root = ops.sqrt(correction_2)
        rate = ops.cast(learning_rate, variable.dtype) * root / correction_1
        self.assign_sub(variable, m * rate / (ops.sqrt(v) + self.epsilon * root))


def _dense(gradient: Any) -> Any:
    """The whole gradient of an embedding, of which TensorFlow has the rows that a batch took, some twice."""
    if not hasattr(gradient, "dense_shape"):  # `tf.IndexedSlices`; no other backend has such
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def corrections(adam: Any) -> tuple[Any, Any]:
    """Adam's 1 - beta^t for the step that it is in; `beta**t` in float32 has lost the digits that matter."""
    t = ops.cast(adam.iterations + 1, adam._momentums[0].dtype)
    first, second = (-ops.expm1(t * math.log(beta)) for beta in (adam.beta_1, adam.beta_2))
    return first, second


class RMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """Epsilon is added to the root."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        s = self._velocities[self._get_variable_index(variable)]
        gradient = _dense(gradient)
        self.assign(s, self.rho * s + (1 - self.rho) * ops.square(gradient))
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * gradient / (ops.sqrt(s) + self.epsilon))


class L2:
    """Before an optimizer's own class: adds `l2` times the weights to the gradient."""

    l2: float

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        gradient = _dense(gradient) + self.l2 * variable
        super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]


class Formulas(NamedTuple):
    """Classes of optimizers that compute the canonical formulas; `l2` comes before another as its mixin."""

    adam: type
    rmsprop: type
    sgd: type
    l2: type


ONE_BY_ONE = Formulas(Adam, RMSprop, keras.optimizers.SGD, L2)
"""With any backend, one variable after the other."""


class CanonicalOptimizer:
    """A Keras optimizer that computes the canonical formula, and what training changes in it.

    `keras` is what `apply_gradients` is called on; it is of Keras's own class where that has the formula.
    """

    def __init__(self, optimizer: Optimizer, variables: list[Any], formulas: Formulas = ONE_BY_ONE) -> None:
        self._rate = optimizer.learning_rate
        self.keras = _keras_optimizer(optimizer, formulas)
        self.keras.build(variables)

    def reset(self) -> None:
        """Zero state and step counter; not the learning rate, which is among the variables as well."""
        for variable in self.keras.variables:
            if variable is not self.keras.learning_rate:
                variable.assign(np.zeros(variable.shape))

    def state(self) -> list[Array]:
        """Copies of what training changes, and the rate: some of the others have it as a factor."""
        return [*(np.array(variable.numpy()) for variable in self.keras.variables), np.array(self._rate)]

    def restore(self, state: Iterable[Array]) -> None:
        """Put values of `state` back, as copies: JAX reuses the memory of what it is given."""
        *values, rate = state
        for variable, value in zip(self.keras.variables, values, strict=True):
            variable.assign(value.copy())
        self._rate = float(rate)

    def set_rate(self, rate: float) -> None:
        """The rate from the next step on; nothing is done where it is the rate already."""
        if rate == self._rate:
            return
        self.keras.learning_rate = np.float64(rate)
        if isinstance(self.keras, keras.optimizers.SGD):
            for velocity in self.keras.momentums:  # which have the rate as a factor
                velocity.assign(velocity.numpy() * (rate / self._rate))
        self._rate = rate


def _keras_optimizer(optimizer: Optimizer, formulas: Formulas) -> Any:
    kind: type
    settings: dict[str, Any]
    match optimizer.name:
        case "adam":
            beta_1, beta_2 = ADAM_BETAS
            kind, settings = formulas.adam, {"beta_1": beta_1, "beta_2": beta_2, "epsilon": ADAM_EPSILON}
        case "rmsprop":
            kind, settings = formulas.rmsprop, {"rho": RMSPROP_DECAY, "epsilon": RMSPROP_EPSILON}
        case "sgd" | "momentum" | "nesterov":
            momentum = np.float64(optimizer.momentum or 0.0)
            kind = formulas.sgd
            settings = {"momentum": momentum, "nesterov": optimizer.name == "nesterov"}
    if optimizer.weight_decay:
        kind = type(kind.__name__, (formulas.l2, kind), {"l2": optimizer.weight_decay})
    return kind(learning_rate=np.float64(optimizer.learning_rate), **settings)
