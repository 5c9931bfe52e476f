"""Keras model that converts weights, gradients and dropout masks from and to the canonical layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import Job
from polybench.engines.shared.batches import dropout_masks
from polybench.engines.shared.keras_layers import build_network, lstm_options
from polybench.engines.shared.keras_layout import batch_to_keras, flattened_shapes, from_keras, tables, to_keras
from polybench.engines.shared.keras_optimizers import PER_VARIABLE, CanonicalOptimizer, OptimizerClasses
from polybench.networks.layers import Shape

LossAndGradients = Callable[[Any, Any], tuple[Any, Iterable[Any]]]
"""(images, labels) -> (loss, gradients of the trainable variables), in the backend's tensors."""

DTYPE_POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16"}


Assign = Callable[[Any, Array], None]
"""(Keras variable, value) -> None."""


def _assign(variable: Any, value: Array) -> None:
    variable.assign(value)


class _VariableSlot(NamedTuple):
    """Keras variable with the information that layout conversion needs.

    `shape` is the canonical one; `flattened_shape` is the canonical (channels, height, width) before the flatten that
    feeds it, if any.
    """

    variable: Any
    shape: Shape
    flattened_shape: Shape | None
    is_table: bool

    def from_canonical(self, value: Array) -> Array:
        """Convert a canonical array to Keras's layout."""
        return to_keras(value, self.flattened_shape, is_table=self.is_table).reshape(self.variable.shape)

    def to_canonical(self, value: Array) -> Array:
        """Convert the value of this variable, or its gradient, to the canonical layout."""
        return from_keras(value, self.shape, self.flattened_shape, is_table=self.is_table)


class CanonicalModel:
    """Keras model of a job, built in the caller's device or strategy scope and in the job's dtype.

    `named_layers` are its layers with canonical names. `assign_masks` assigns the masks of a whole batch to a variable,
    which may hold a replica's shard only.
    """

    def __init__(self, job: Job, weights: Weights, assign_masks: Assign = _assign) -> None:
        self._job, self._assign_masks = job, assign_masks
        # These override the user's ~/.keras/keras.json.
        keras.config.set_image_data_format("channels_last")
        keras.config.set_floatx(job.dtype)
        keras.config.set_dtype_policy("float64" if job.dtype == "float64" else DTYPE_POLICIES[job.workload.precision])
        shard_size = job.workload.batch_size // job.workload.replicas
        mask_batch_size = shard_size if job.dropout == "given" else None
        options = lstm_options(job.variants)
        network = build_network(job.model, mask_batch_size=mask_batch_size, seed=job.seed, lstm_options=options)
        self.model, self.named_layers = network
        self._flattened_shapes = flattened_shapes(job.model)
        names_of_tables, shapes = tables(job.model.layers), job.model.tensor_shapes()
        self._variables = {
            name: _VariableSlot(variable, shapes[name], self._flattened_shapes.get(name), name in names_of_tables)
            for name, variable in network.variables(shapes).items()
        }
        # Keras orders the variables of two residual branches differently.
        names = {id(slot.variable): name for name, slot in self._variables.items()}
        self._trained = [names[id(variable)] for variable in self.model.trainable_variables]
        # The state includes dropout's generators, so that dropout draws the same masks after every reset.
        self._initial_state = self.state()
        self.set_initial_weights(weights)

    def optimizer(self, classes: OptimizerClasses = PER_VARIABLE) -> CanonicalOptimizer:
        """Make the job's optimizer of this model."""
        vectors = [self._variables[name].variable for name in self._trained if len(self._variables[name].shape) < 2]
        return CanonicalOptimizer(self._job.workload.optimizer, self.model.trainable_variables, vectors, classes)

    def set_initial_weights(self, weights: Weights) -> None:
        """Replace the weights that `reset` restores."""
        self._initial = {
            name: slot.from_canonical(weights[name].astype(self._job.dtype)) for name, slot in self._variables.items()
        }

    def reset(self) -> None:
        """Restore initial weights, statistics and generators."""
        self.restore(self._initial_state)
        for name, slot in self._variables.items():
            slot.variable.assign(self._initial[name].copy())

    def state(self) -> list[Array]:
        """Copies of the variables that a forward pass changes."""
        return [variable.numpy() for variable in self.model.non_trainable_variables]

    def restore(self, state: Iterable[Array]) -> None:
        """Restore a result of `state` from copies, since JAX reuses the memory of its arguments."""
        for variable, value in zip(self.model.non_trainable_variables, state, strict=True):
            variable.assign(value.copy())

    def training_state(self, optimizer: CanonicalOptimizer) -> Weights:
        """Copies of everything that a step changes."""
        trained = [np.array(variable.numpy()) for variable in self.model.trainable_variables]
        groups = {"trained": trained, "state": self.state(), "optimizer": optimizer.state()}
        return {f"{group}.{index}": value for group in groups for index, value in enumerate(groups[group])}

    def restore_training_state(self, state: Weights, optimizer: CanonicalOptimizer) -> None:
        """Restore a result of `training_state`."""
        groups: dict[str, list[Array]] = {"trained": [], "state": [], "optimizer": []}
        for name, value in state.items():  # in the order of `training_state`
            groups[name.partition(".")[0]].append(value)
        for variable, value in zip(self.model.trainable_variables, groups["trained"], strict=True):
            variable.assign(value.copy())
        self.restore(groups["state"])
        optimizer.restore(groups["optimizer"])

    def weights(self) -> Weights:
        """Current weights and batch norm statistics in the canonical layout."""
        return {name: slot.to_canonical(slot.variable.numpy()) for name, slot in self._variables.items()}

    def gradients(self, gradients: Iterable[Any]) -> Weights:
        """Convert gradients, in the order of `model.trainable_variables`, to the canonical layout."""
        return {
            name: self._variables[name].to_canonical(keras.ops.convert_to_numpy(gradient))
            for name, gradient in zip(self._trained, gradients, strict=True)
        }

    def snapshot(self, step: int, batch: tuple[Any, Any], loss_and_gradients: LossAndGradients) -> Snapshot:
        """Compute a step's loss and gradients at the current weights without changing any state."""
        list(self.with_masks([step]))
        state = self.state()
        loss, gradients = loss_and_gradients(*batch)
        self.restore(state)  # the forward pass has changed it
        return Snapshot(float(loss), self.gradients(gradients), self.weights())

    def with_masks(self, steps: Iterable[int]) -> Iterable[int]:
        """Yield the same steps; if the job fixes the dropout masks, set each step's masks first."""
        return map(self._set_masks, steps) if self._job.dropout == "given" else steps

    def _set_masks(self, step: int) -> int:
        batch_size = self._job.workload.batch_size
        for name, mask in dropout_masks(self._job.model, batch_size, self._job.seed, step).items():
            values = batch_to_keras(mask, self._flattened_shapes.get(name))
            self._assign_masks(self.named_layers[name].mask, values.astype(self._job.dtype))
        return step
