"""The proof: training steps of the user's program and of the network in float64, compared as the parity check does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from polybench.data.disk import check_free_space
from polybench.engines.base import Array, Weights
from polybench.engines.job import NumericalConventions
from polybench.engines.reference.network import Pass, loss_and_gradients
from polybench.engines.shared.batches import dropout_masks
from polybench.importer.graph import Translation
from polybench.networks.model import Model
from polybench.networks.optimizers import State as OptimizerState
from polybench.networks.optimizers import apply_update
from polybench.parity_check.comparison import (
    State,
    find_zero_gradients,
    float64_errors,
    float64_tolerance,
    largest_errors,
    largest_failure,
)
from polybench.schema.imported import Proof
from polybench.schema.options import Workload

STEPS = 3
_SEED = 0


class Result(NamedTuple):
    """A forward and backward pass of the user's program: gradients of its variables, by name."""

    loss: float
    gradients: Mapping[str, Array]


class Program(Protocol):
    """The user's model in float64."""

    conventions: NumericalConventions
    """The rules by which its framework differs from the reference by design."""

    def variables(self) -> dict[str, Array]:
        """Return copies of its weights and running statistics by name."""
        ...

    def assign(self, values: Mapping[str, Array]) -> None:
        """Replace its weights and running statistics."""
        ...

    def close(self) -> None:
        """Restore the model as it was."""
        ...

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:
        """Compute the loss of a batch (canonical layout) and the gradients; running statistics change.

        `masks` are those of dropout by layer name, in the order of the program.
        """
        ...


def canonical_weights(translation: Translation, variables: Mapping[str, Array]) -> Weights:
    """Return the program's weights and running statistics in the canonical layout."""
    return {name: translation.slots[name].read(variables) for name in translation.model.tensor_shapes()}


def prove(program: Program, translation: Translation, folder: Path) -> Proof:
    """Train both for some steps from the program's weights; `folder` receives the tensors of each step.

    The network is computed by the float64 reference. Batches and dropout masks are equal, drawn at random.
    """
    model = translation.model
    workload = Workload(model.name, "random", model.parity_batch_size, model.optimizer, "fp32", 1)
    batches = _batches(model)
    initial = canonical_weights(translation, program.variables())

    def original(weights: Weights, inputs: Array, labels: Array, masks: Weights) -> Pass:
        variables = {name: np.array(value) for name, value in program.variables().items()}
        for name, slot in translation.slots.items():
            variables[slot.variable].reshape(-1)[slot.indices] = weights[name]
        program.assign(variables)
        loss, gradients = program.train(inputs, labels, masks)
        after = program.variables()
        return Pass(
            loss,
            {name: translation.slots[name].read(gradients) for name in model.weight_shapes()},
            {name: translation.slots[name].read(after) for name in model.state_shapes()},
        )

    def reference(weights: Weights, inputs: Array, labels: Array, masks: Weights) -> Pass:
        return loss_and_gradients(model, weights, inputs, labels, program.conventions, masks)

    with check_free_space(folder, 2 * (STEPS + 1) * 8 * (model.parameters() + model.total_parameters())):
        actual, expected = (
            _train(compute, model, initial, batches, folder / name)
            for name, compute in (("program", original), ("network", reference))
        )
    tolerance = float64_tolerance(model, workload)
    zero = find_zero_gradients([state.gradients for state in expected], tolerance["gradient"])
    tensors = [
        comparison
        for step, pair in enumerate(zip(actual, expected, strict=True))
        for comparison in float64_errors(range(step), *pair, tolerance, model.optimizer, zero)
    ]
    return Proof(
        STEPS, model.parity_batch_size, len(tensors), largest_errors(tensors, tolerance), largest_failure(tensors)
    )


def _batches(model: Model) -> list[tuple[Array, Array]]:
    random = np.random.default_rng(_SEED)
    batch = model.parity_batch_size
    vocabulary = model.vocabulary_size

    def inputs() -> Array:
        shape = (batch, *model.input_shape)
        if vocabulary:
            return random.integers(vocabulary, size=shape, dtype=np.int32)
        return np.asarray(random.random(shape, np.float32), np.float64)  # Keras rounds a model's input to float32

    return [(inputs(), random.integers(model.classes, size=(batch, *model.label_shape))) for _ in range(STEPS + 1)]


def _train(
    compute: Callable[..., Pass], model: Model, weights: Weights, batches: list[tuple[Array, Array]], folder: Path
) -> list[State]:
    """Return the state before each step, and after the last one."""
    folder.mkdir()
    optimizers: dict[str, OptimizerState] = {}
    states = []
    values: dict[str, Any] = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    for step, batch in enumerate(batches):
        result = compute(values, *batch, dropout_masks(model, model.parity_batch_size, _SEED, step))
        state = State(result.loss, folder / f"{step}.gradients.npz", folder / f"{step}.weights.npz")
        gradients: dict[str, Any] = dict(result.gradients)
        np.savez(state.gradients, **gradients)
        np.savez(state.weights, **values)
        states.append(state)
        rate = model.optimizer.learning_rate_at(step)
        for name, gradient in result.gradients.items():
            values[name], optimizers[name] = apply_update(
                model.optimizer, rate, values[name], gradient, optimizers.get(name, {})
            )
        values |= result.state
    return states
