"""The engines tf and keras read and change the state of their programs with this. This module imports Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import keras
import numpy as np

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.engines.shared.batches import dropout_masks
from polybench.engines.shared.keras_layout import batch_to_keras, flattened_shapes

LossAndGradients = Callable[[Any, Any], tuple[Any, Iterable[Any]]]
"""(inputs, labels) -> loss and gradients of `model.trainable_variables`: a training step without the update."""

_SOURCES = {
    "running_variance": "Keras's BatchNormalization: moving_variance uses keras.ops.moments, divided by n",
    "batch_norm_sums": "tf.nn.moments, Eigen's InnerMostDimPreserver, TensorReduction.h",
}

EIGEN_PARTIAL_SUMS = 4
"""Partial sums in Eigen's CPU reduction over all axes but the last, for any number of threads.

Adding small values to a large float32 sum loses digits, always in the same direction: over 262,144 pixels, a
variance is off by 4e-4."""


def conventions(job: Job) -> NumericalConventions:
    """Return the deviations that Keras and its backend have by design in this network."""
    if not job.model.has_statistics:
        return NO_DEVIATIONS
    by_eigen = (
        keras.backend.backend() == "tensorflow"
        and job.device == "cpu"
        and job.dtype == "float32"
        and "xla" not in job.variants
    )
    sums = EIGEN_PARTIAL_SUMS if by_eigen else NO_DEVIATIONS.batch_norm_sums
    return NumericalConventions(running_variance="biased", batch_norm_sums=sums, sources=_SOURCES)


def restore_defaults(dtype: str) -> None:
    """Set Keras's own defaults for a type, which the user's keras.json or an earlier program may have changed."""
    keras.config.set_image_data_format("channels_last")
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)


def masks(job: Job, step: int) -> dict[str, Array]:
    """Return the given masks of dropout for a step, in Keras's layout."""
    flattened = flattened_shapes(job.model)
    given = dropout_masks(job.model, job.workload.batch_size, job.seed, step)
    return {name: batch_to_keras(mask, flattened.get(name)).astype(job.dtype) for name, mask in given.items()}


def training_state(state: Any) -> Weights:
    """Copy everything that a step changes, and the learning rate, a factor of the velocities, to NumPy arrays."""
    found = {f"{group}.{index}": value for group, values in _variables(state) for index, value in enumerate(values)}
    copied = {name: np.array(variable.numpy()) for name, variable in found.items()}
    return copied | ({"rate": np.array(state.rate)} if hasattr(state, "rate") else {})


def restore(saved: Weights, state: Any) -> None:
    """Restore a result of `training_state`, from copies, since JAX reuses the memory of its arguments."""
    for group, variables in _variables(state):
        for index, variable in enumerate(variables):
            variable.assign(saved[f"{group}.{index}"].copy())
    if hasattr(state, "rate"):
        state.rate = float(saved["rate"])


def _variables(state: Any) -> Iterable[tuple[str, list[Any]]]:
    yield "trained", state.model.trainable_variables
    yield "state", state.model.non_trainable_variables
    if hasattr(state, "optimizer"):
        yield "optimizer", state.optimizer.variables


def snapshot(
    program: ModuleType, state: Any, batch: tuple[Any, Any], loss_and_gradients: LossAndGradients, names: Iterable[str]
) -> Snapshot:
    """Compute the loss and gradients of a batch at the current weights without changing any state.

    `names` are those of the network's tensors.
    """
    changed = state.model.non_trainable_variables
    before = [np.array(variable.numpy()) for variable in changed]
    loss, gradients = loss_and_gradients(*batch)
    for variable, value in zip(changed, before, strict=True):  # the forward pass has changed it
        variable.assign(value)
    # Keras orders the variables of two residual branches differently.
    views = {id(variable): (name, view) for name, (variable, view) in program.variables(state.model).items()}
    trained = [views[id(variable)] for variable in state.model.trainable_variables]
    arrays = map(keras.ops.convert_to_numpy, gradients)
    named = {name: np.ascontiguousarray(view(array)) for (name, view), array in zip(trained, arrays, strict=True)}
    weights = program.weights(state)
    return Snapshot(float(loss), named, {name: weights[name] for name in names})
