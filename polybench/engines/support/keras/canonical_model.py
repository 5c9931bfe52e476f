"""A network in Keras whose weights, gradients and dropout masks go in and come out canonical."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from polybench.core.job import Job
from polybench.core.layer_base import Shape
from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.support.dropout_masks import dropout_masks
from polybench.engines.support.keras.layers import network
from polybench.engines.support.keras.layout import (
    batch_to_keras,
    flattened_shapes,
    from_keras,
    tables,
    to_keras,
)
from polybench.engines.support.keras.optimizers import CanonicalOptimizer
from polybench.engines.support.keras.recurrent import options_of

LossAndGradients = Callable[[Any, Any], tuple[Any, Iterable[Any]]]
"""Of images and labels, as the backend has them; gradients are those of the trainable variables."""

POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16"}


Assign = Callable[[Any, Array], None]
"""Of a Keras variable and a value."""


def _assign(variable: Any, value: Array) -> None:
    variable.assign(value)


class _Placed(NamedTuple):
    """A Keras variable, and how it lies there.

    Attributes:
        variable: Keras's.
        flattened: the canonical (channels, height, width) of what was flattened into its input.
        table: whether it is an embedding's.
    """

    variable: Any
    flattened: Shape | None
    table: bool

    def from_canonical(self, value: Array) -> Array:
        """As Keras has it."""
        return to_keras(value, self.flattened, table=self.table)

    def canonical(self, value: Array) -> Array:
        """Of this variable, or of its gradient."""
        return from_keras(value, self.flattened, table=self.table)


class CanonicalModel:
    """The network of a job, built where the caller is, in the job's type.

    `model` is Keras's, `named` are those of its layers that have names.

    Args:
        job: what to build.
        weights: the initial ones.
        assign_masks: puts those of a whole batch into a variable, which has a replica's part of them.
    """

    def __init__(self, job: Job, weights: Weights, assign_masks: Assign = _assign) -> None:
        self._job, self._assign_masks = job, assign_masks
        # Whatever the user's ~/.keras/keras.json says.
        keras.config.set_image_data_format("channels_last")
        keras.config.set_floatx(job.dtype)
        keras.config.set_dtype_policy(
            "float64" if job.dtype == "float64" else POLICIES[job.workload.precision]
        )
        each = job.workload.batch_size // job.workload.replicas
        masks_for = each if job.dropout == "given" else None
        options = options_of(job.variants)
        made = network(job.model, masks_for=masks_for, seed=job.seed, lstm_options=options)
        self.model, self.named = made
        self._flattened = flattened_shapes(job.model)
        rows = tables(job.model.layers)
        self._variables = {
            name: _Placed(variable, self._flattened.get(name), name in rows)
            for name, variable in made.variables(job.model.tensor_shapes()).items()
        }
        # Keras has its own order where a residual block has two branches.
        names = {id(placed.variable): name for name, placed in self._variables.items()}
        self._trained = [names[id(variable)] for variable in self.model.trainable_variables]
        # The generators of dropout are among them: it draws the same masks after every reset.
        self._initial_state = self.state()
        self.start_from(weights)

    def start_from(self, weights: Weights) -> None:
        """What `reset` goes back to."""
        self._initial = {
            name: placed.from_canonical(weights[name].astype(self._job.dtype))
            for name, placed in self._variables.items()
        }

    def reset(self) -> None:
        """Initial weights, statistics and generators."""
        self.restore(self._initial_state)
        for name, placed in self._variables.items():
            placed.variable.assign(self._initial[name].copy())

    def state(self) -> list[Array]:
        """Copies of what a forward pass changes."""
        return [variable.numpy() for variable in self.model.non_trainable_variables]

    def restore(self, state: Iterable[Array]) -> None:
        """Put values of `state` back, as copies: JAX reuses the memory of what it is given."""
        for variable, value in zip(self.model.non_trainable_variables, state, strict=True):
            variable.assign(value.copy())

    def training_state(self, optimizer: CanonicalOptimizer) -> Weights:
        """Copies of all that a step changes."""
        trained = [np.array(variable.numpy()) for variable in self.model.trainable_variables]
        parts = {"trained": trained, "state": self.state(), "optimizer": optimizer.state()}
        return {f"{part}.{index}": value for part in parts for index, value in enumerate(parts[part])}

    def go_on_from(self, state: Weights, optimizer: CanonicalOptimizer) -> None:
        """Put values of `training_state` back."""
        parts: dict[str, list[Array]] = {"trained": [], "state": [], "optimizer": []}
        for name, value in state.items():  # in the order in which they were written
            parts[name.partition(".")[0]].append(value)
        for variable, value in zip(self.model.trainable_variables, parts["trained"], strict=True):
            variable.assign(value.copy())
        self.restore(parts["state"])
        optimizer.restore(parts["optimizer"])

    def weights(self) -> Weights:
        """The current ones, batch norm's statistics included."""
        return {name: placed.canonical(placed.variable.numpy()) for name, placed in self._variables.items()}

    def gradients(self, gradients: Iterable[Any]) -> Weights:
        """Those of `model.trainable_variables`, in this order, as the backend has them."""
        return {
            name: self._variables[name].canonical(keras.ops.convert_to_numpy(gradient))
            for name, gradient in zip(self._trained, gradients, strict=True)
        }

    def snapshot(self, step: int, batch: tuple[Any, Any], loss_and_gradients: LossAndGradients) -> Snapshot:
        """What a step from the current weights computes; it leaves them, and all state, as they are."""
        list(self.with_masks([step]))
        state = self.state()
        loss, gradients = loss_and_gradients(*batch)
        self.restore(state)  # the forward pass has moved it
        return Snapshot(float(loss), self.gradients(gradients), self.weights())

    def with_masks(self, steps: Iterable[int]) -> Iterable[int]:
        """The same steps; where dropout masks are given, each one's are put in place before it."""
        return map(self._give_masks, steps) if self._job.dropout == "given" else steps

    def _give_masks(self, step: int) -> int:
        batch_size = self._job.workload.batch_size
        for name, mask in dropout_masks(self._job.model, batch_size, self._job.seed, step).items():
            values = batch_to_keras(mask, self._flattened.get(name))
            self._assign_masks(self.named[name].mask, values.astype(self._job.dtype))
        return step
