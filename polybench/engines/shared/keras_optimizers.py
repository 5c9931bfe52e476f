"""Keras optimizers adapted to the canonical formulas. This module imports Keras.

Keras 3.15 differs in seven places:

- `SGD` stores V = -rate v: the same weights while the rate is constant. If the rate changes, V is rescaled.
- `Adam` adds epsilon to the root of v before the bias correction: an epsilon 32 times as large in the first
  step. It computes 1 - 0.999^t in the weights' dtype, which in float32 is 5e-5 off in the first step.
- `RMSprop` adds epsilon inside the root.
- `weight_decay` shrinks the weights separately instead of adding to the gradient: the formula of AdamW only.
- `global_clipnorm` divides by the norm without the 1e-6 of PyTorch.
- `Adam` and `RMSprop` on TensorFlow, for an embedding row that occurs several times in a batch, add the
  squares of its gradients instead of squaring their sum (docs/upstream/keras_adam.md).
- A Python float is rounded to float32 even if the weights are float64; `np.float64` is not.

`SGD(nesterov=True)` has the canonical form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from polybench.engines.base import Array
from polybench.networks.optimizers import (
    ADAM_BETAS,
    ADAM_EPSILON,
    CLIP_EPSILON,
    RMSPROP_DECAY,
    RMSPROP_EPSILON,
    Optimizer,
)


class Adam(keras.optimizers.Adam):  # type: ignore[misc]
    """Adam with epsilon added to the root of the bias-corrected v, and exact bias corrections.

    Both corrections are folded into the scalars rate and epsilon, so that a large embedding is read no more
    often than by Keras's own Adam.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        gradient = _to_dense(gradient)
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        correction_1, correction_2 = bias_corrections(self)
        root = ops.sqrt(correction_2)
        rate = ops.cast(learning_rate, variable.dtype) * root / correction_1
        self.assign_sub(variable, m * rate / (ops.sqrt(v) + self.epsilon * root))


def _to_dense(gradient: Any) -> Any:
    """Convert an embedding's sparse gradient to a dense one; TensorFlow's has repeated rows."""
    if not hasattr(gradient, "dense_shape"):  # `tf.IndexedSlices`, on TensorFlow only
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def bias_corrections(adam: Any) -> tuple[Any, Any]:
    """Compute Adam's 1 - beta^t of the current step with `expm1`; `beta**t` in float32 loses digits."""
    t = ops.cast(adam.iterations + 1, adam._momentums[0].dtype)
    first, second = (-ops.expm1(t * math.log(beta)) for beta in (adam.beta_1, adam.beta_2))
    return first, second


class RMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """RMSprop with epsilon added to the root."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        s = self._velocities[self._get_variable_index(variable)]
        gradient = _to_dense(gradient)
        self.assign(s, self.rho * s + (1 - self.rho) * ops.square(gradient))
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * gradient / (ops.sqrt(s) + self.epsilon))


class L2:
    """Mixin for an optimizer class that adds `l2` times the weights to the gradient."""

    l2: float

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        gradient = _to_dense(gradient) + self.l2 * variable
        super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]


class Clip:
    """Mixin for an optimizer class that multiplies all gradients by min(1, largest / (norm + 1e-6)).

    Keras's `global_clipnorm` has no 1e-6.
    """

    largest: float

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads = [_to_dense(gradient) for gradient in grads]
        norm = ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in grads))
        factor = ops.minimum(np.float64(1), self.largest / (norm + CLIP_EPSILON))
        clipped = [gradient * ops.cast(factor, gradient.dtype) for gradient in grads]
        return super().apply(clipped, trainable_variables)  # type: ignore[misc]


class OptimizerClasses(NamedTuple):
    """Optimizer classes that compute the canonical formulas; `l2` is a mixin for the others."""

    adam: type
    rmsprop: type
    sgd: type
    l2: type


PER_VARIABLE = OptimizerClasses(Adam, RMSprop, keras.optimizers.SGD, L2)
"""Classes for every backend, which update one variable at a time."""


class CanonicalOptimizer:
    """Keras optimizer that computes the canonical formula, with access to its state.

    `keras` is the Keras optimizer, of Keras's own class if that has the canonical formula. `vectors` are the variables
    with one axis in the canonical layout: AdamW does not decay them.
    """

    def __init__(
        self, optimizer: Optimizer, variables: list[Any], vectors: list[Any], classes: OptimizerClasses = PER_VARIABLE
    ) -> None:
        self._rate = optimizer.learning_rate
        self.keras = _keras_optimizer(optimizer, classes)
        if optimizer.name == "adamw" and vectors:
            self.keras.exclude_from_weight_decay(vectors)
        self.keras.build(variables)

    def reset(self) -> None:
        """Set state and step counter to zero; the learning rate, also a variable, is unchanged."""
        for variable in self.keras.variables:
            if variable is not self.keras.learning_rate:
                variable.assign(np.zeros(variable.shape))

    def state(self) -> list[Array]:
        """Copies of the optimizer's variables, and the learning rate, a factor of some of them."""
        return [*(np.array(variable.numpy()) for variable in self.keras.variables), np.array(self._rate)]

    def restore(self, state: Iterable[Array]) -> None:
        """Restore a result of `state` from copies, since JAX reuses the memory of its arguments."""
        *values, rate = state
        for variable, value in zip(self.keras.variables, values, strict=True):
            variable.assign(value.copy())
        self._rate = float(rate)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate from the next step on, if it differs from the current one."""
        if rate == self._rate:
            return
        self.keras.learning_rate = np.float64(rate)
        if isinstance(self.keras, keras.optimizers.SGD):
            for velocity in self.keras.momentums:  # the rate is a factor of each velocity
                velocity.assign(velocity.numpy() * (rate / self._rate))
        self._rate = rate


def _keras_optimizer(optimizer: Optimizer, classes: OptimizerClasses) -> Any:
    kind: type
    settings: dict[str, Any]
    match optimizer.name:
        case "adam" | "adamw":
            beta_1, beta_2 = optimizer.betas or ADAM_BETAS
            kind, settings = classes.adam, {"beta_1": beta_1, "beta_2": beta_2, "epsilon": ADAM_EPSILON}
            if optimizer.name == "adamw":  # Keras's AdamW is its Adam with this setting
                settings["weight_decay"] = np.float64(optimizer.weight_decay)
        case "rmsprop":
            kind, settings = classes.rmsprop, {"rho": RMSPROP_DECAY, "epsilon": RMSPROP_EPSILON}
        case "sgd" | "momentum" | "nesterov":
            momentum = np.float64(optimizer.momentum or 0.0)
            kind = classes.sgd
            settings = {"momentum": momentum, "nesterov": optimizer.name == "nesterov"}
    if optimizer.weight_decay and optimizer.name != "adamw":
        kind = type(kind.__name__, (classes.l2, kind), {"l2": optimizer.weight_decay})
    if optimizer.gradient_clip:
        kind = type(kind.__name__, (Clip, kind), {"largest": np.float64(optimizer.gradient_clip)})
    return kind(learning_rate=np.float64(optimizer.learning_rate), **settings)
