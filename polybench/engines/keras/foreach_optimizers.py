"""Multi-tensor versions of `shared.keras_optimizers` for Keras on PyTorch. This module imports PyTorch.

Keras's own optimizers also update all variables at once on PyTorch (`TorchParallelOptimizer`).
"""

from __future__ import annotations

from typing import Any

import keras
import torch
from keras import ops

from polybench.engines.shared.keras_optimizers import OptimizerClasses, bias_corrections


class _Adam(keras.optimizers.Adam):  # type: ignore[misc]
    """Adam with epsilon added to the root of the bias-corrected v."""

    def _backend_update_step(self, grads: list[Any], trainable_variables: list[Any], learning_rate: Any) -> None:
        weights, indices = _tensors_and_indices(self, trainable_variables)
        m, v = ([state[index].value for index in indices] for state in (self._momentums, self._velocities))
        torch._foreach_mul_(m, self.beta_1)
        torch._foreach_add_(m, grads, alpha=1 - self.beta_1)
        torch._foreach_mul_(v, self.beta_2)
        torch._foreach_addcmul_(v, grads, grads, value=1 - self.beta_2)
        correction_1, correction_2 = bias_corrections(self)
        root = ops.sqrt(correction_2)
        roots = torch._foreach_sqrt(v)
        torch._foreach_add_(roots, self.epsilon * root)
        steps = torch._foreach_div(m, roots)
        _subtract(weights, steps, ops.cast(learning_rate, root.dtype) * root / correction_1)


class _RMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """RMSprop with epsilon added to the root."""

    def _backend_update_step(self, grads: list[Any], trainable_variables: list[Any], learning_rate: Any) -> None:
        weights, indices = _tensors_and_indices(self, trainable_variables)
        s = [self._velocities[index].value for index in indices]
        torch._foreach_mul_(s, self.rho)
        torch._foreach_addcmul_(s, grads, grads, value=1 - self.rho)
        roots = torch._foreach_sqrt(s)
        torch._foreach_add_(roots, self.epsilon)
        _subtract(weights, torch._foreach_div(grads, roots), learning_rate)


class _L2:
    """Mixin for an optimizer class that adds `l2` times the weights to the gradients."""

    l2: float

    def _backend_update_step(self, grads: list[Any], trainable_variables: list[Any], learning_rate: Any) -> None:
        weights = [variable.value for variable in trainable_variables]
        decayed = torch._foreach_add(grads, weights, alpha=self.l2)
        super()._backend_update_step(decayed, trainable_variables, learning_rate)  # type: ignore[misc]


def _tensors_and_indices(optimizer: Any, variables: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the variables' tensors and their indices in the optimizer's state."""
    indices = [optimizer._get_variable_index(variable) for variable in variables]
    return [variable.value for variable in variables], indices


def _subtract(weights: list[Any], steps: list[Any], learning_rate: Any) -> None:
    rate = ops.cast(learning_rate, weights[0].dtype)
    torch._foreach_sub_(weights, torch._foreach_mul(steps, rate))


# `type(SGD())` is the class that Keras substitutes for SGD on PyTorch.
FOREACH_OPTIMIZERS = OptimizerClasses(_Adam, _RMSprop, type(keras.optimizers.SGD()), _L2)
