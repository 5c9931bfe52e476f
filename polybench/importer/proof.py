"""The proof: training steps of the user's program and of the network in float64, compared as the parity check does.

The program takes the steps that a user of its framework writes. It trains from its own weights and from drawn ones, on
batches of the network file's size and on small ones, and evaluates each batch before it trains on it.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from polybench.data.batches import repeated_rows
from polybench.data.disk import check_free_space
from polybench.engines.base import Array, Weights
from polybench.engines.job import NumericalConventions
from polybench.engines.reference.network import logits, loss_and_gradients
from polybench.engines.shared.batches import dropout_masks
from polybench.errors import BadInput
from polybench.importer.graph import Translation
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model
from polybench.networks.network_file import FINGERPRINT_MARK, REFERENCE_RATE
from polybench.networks.optimizers import State as OptimizerState
from polybench.networks.optimizers import apply_update
from polybench.parity_check.comparison import (
    State,
    find_zero_gradients,
    float64_errors,
    float64_tolerance,
    largest_errors,
    largest_failure,
    logits_error,
    vary_constants,
)
from polybench.schema.imported import Proof
from polybench.schema.options import Workload
from polybench.schema.parity import TensorComparison

_SEED = 0

_MAX_VALUES = 1 << 28
"""Maximum number of the activations of a batch: 2 GiB in float64."""

_MAX_MACS = 2e11
"""Maximum multiply-adds of a training step: about a minute in float64 on two cores."""

_VOCABULARY_SECONDS = 60
"""Maximum time of the reference for the steps that see every token of a vocabulary."""

_DRAWN_INPUTS = {"logits": 4, "probabilities": 1}
"""Standard deviation of the inputs with drawn weights, by the program's output. Activations then pass the 6 of ReLU6,
which [0, 1) hides. Keras takes probabilities below 1e-7 for 1e-7."""


class Result(NamedTuple):
    """A training step of the user's program: the loss before it, and the gradients of its variables by name."""

    loss: float
    gradients: Mapping[str, Array]


class Program(Protocol):
    """The user's model in float64."""

    conventions: NumericalConventions
    """The rules by which its framework differs from the reference by design."""
    rounding: float
    """Relative error that its framework makes in float64 in layers of this network; 0 if it computes all in float64."""

    def variables(self) -> dict[str, Array]:
        """Return copies of its weights and running statistics by name."""
        ...

    def start(self, values: Mapping[str, Array]) -> None:
        """Replace its weights and running statistics, and begin a training with the network's optimizer."""
        ...

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:
        """Take a training step, as a user of the framework does, on a batch in the canonical layout.

        The loss is the program's own, or the cross-entropy if it has none. `masks` are those of dropout by layer name,
        in the order of the program.
        """
        ...

    def evaluate(self, inputs: Array) -> Array:
        """Return the output of a batch in evaluation."""
        ...

    def generators(self) -> Mapping[str, bytes]:
        """Return the states of the framework's random generators by name."""
        ...

    def close(self) -> None:
        """Restore the model as it was."""
        ...


class _Batch(NamedTuple):
    inputs: Array
    labels: Array
    masks: Mapping[str, Array]


class _Training(NamedTuple):
    """A training from `weights`, with a step on each batch but the last."""

    weights_name: str
    weights: Weights
    batches: list[_Batch]


def canonical_weights(translation: Translation, variables: Mapping[str, Array]) -> Weights:
    """Return the program's weights and running statistics in the canonical layout."""
    return {name: translation.slots[name].read(variables) for name in translation.model.tensor_shapes()}


def prove(program: Program, translation: Translation, folder: Path) -> Proof:
    """Train and evaluate both from equal weights; `folder` receives the tensors of each step.

    The network is computed by the float64 reference. Batches and dropout masks are equal, drawn at random.

    Raises:
        BadInput: the program draws random numbers.
    """
    model = translation.model
    comparison = _Comparison(program, translation)
    scale = _DRAWN_INPUTS["probabilities" if translation.returns_probabilities else "logits"]
    trainings = _trainings(model, canonical_weights(translation, comparison.initial), scale)
    passes = sum(len(training.batches) for training in trainings)
    tensors, failure = list[TensorComparison](), None
    with check_free_space(folder, 2 * passes * 8 * (model.parameters() + model.total_parameters())):
        for number, training in enumerate(trainings):
            found = comparison.compare(training, folder / str(number))
            if (problem := largest_failure(found)) and failure is None:
                failure = f"from {training.weights_name} weights, {_describe(training.batches)}: {problem}"
            tensors += found
    return Proof(
        steps=passes - len(trainings),
        batch_sizes=sorted({len(batch.labels) for training in trainings for batch in training.batches}),
        comparisons=len(tensors),
        errors=largest_errors(tensors, comparison.tolerance),
        failure=failure,
        omitted=omitted(model),
    )


def _describe(batches: Sequence[_Batch]) -> str:
    return f"batches of {', '.join(str(len(batch.labels)) for batch in batches)}"


class BatchSizes(NamedTuple):
    """The sizes of a small batch, of one of the network file's size, and of those that show a vocabulary in turn."""

    small: int
    large: int
    vocabulary: list[int]


def batch_sizes(model: Model) -> BatchSizes:
    """Return the sizes of the proof's batches, which its time and memory limit."""
    values = sum(math.prod(shape) for _, shape in model.activations())
    macs = max(1, model.training_macs())
    affordable = max(2, int(min(_MAX_VALUES // values, _MAX_MACS / macs)))
    large = min(model.batch_size, affordable)
    parts = []
    if model.vocabulary_size:
        most = int(_VOCABULARY_SECONDS * REFERENCE_RATE / macs)
        rows = max(2, min(-(-model.vocabulary_size // model.input_shape[0]), most))
        parts = [len(part) for part in np.array_split(np.arange(rows), -(-rows // affordable))]
    return BatchSizes(min(model.parity_batch_size, large), large, parts)


def _trainings(model: Model, own: Weights, scale: float) -> list[_Training]:
    generator = np.random.default_rng(_SEED)
    small, large, vocabulary = batch_sizes(model)
    first = _batches(model, generator, (small, large, small, small), 0)
    second = _batches(model, generator, (large, small), scale)
    start = 0
    for size in vocabulary:
        tokens = np.arange(start, start := start + size * model.input_shape[0], dtype=np.int32)
        inputs = (tokens % (model.vocabulary_size or 1)).reshape(size, -1)
        labels = generator.integers(model.classes, size=(size, *model.label_shape))
        second.append(_Batch(inputs, labels, dropout_masks(model, size, _SEED, len(second))))
    return [_Training("the model's own", own, first), _Training("drawn", _drawn_weights(model), second)]


def omitted(model: Model) -> list[str]:
    """Return sentences about what the proof leaves out."""
    sizes, sentences = batch_sizes(model), []
    if sizes.large < model.batch_size:
        sentences.append(f"the proof has batches of {sizes.large}: {model.batch_size} would take too long")
    tokens = sum(sizes.vocabulary) * model.input_shape[0]
    if tokens < (model.vocabulary_size or 0):
        sentences.append(f"the proof has the first {tokens:,} tokens in turn: all of them would take too long")
    return sentences


def _batches(model: Model, generator: np.random.Generator, sizes: Sequence[int], scale: float) -> list[_Batch]:
    """Draw batches whose inputs are normal with this standard deviation; uniform in [0, 1) if it is 0.

    A large batch repeats the rows of a small one, as in the parity check.
    """
    vocabulary = model.vocabulary_size

    def batch(step: int, size: int) -> _Batch:
        rows = repeated_rows(size, model.parity_batch_size)
        shape = (rows.max() + 1, *model.input_shape)
        inputs: Array
        if vocabulary:
            inputs = generator.integers(vocabulary, size=shape, dtype=np.int32)
        else:  # Keras rounds a model's input to float32
            drawn = (
                scale * generator.standard_normal(shape, np.float32) if scale else generator.random(shape, np.float32)
            )
            inputs = drawn.astype(np.float32).astype(np.float64)
        labels = generator.integers(model.classes, size=(len(inputs), *model.label_shape))
        return _Batch(inputs[rows], labels[rows], dropout_masks(model, size, _SEED, step))

    return [batch(step, size) for step, size in enumerate(sizes)]


def _drawn_weights(model: Model) -> Weights:
    """Draw weights of He's scale, which keeps the size of activations, and other values for what starts constant."""
    drawn = initial_weights(msgspec.structs.replace(model, initialization="he"), _SEED)
    return {name: value.astype(np.float64) for name, value in vary_constants(drawn).items()}


class _Comparison:
    """Compares trainings of the program and of its network."""

    def __init__(self, program: Program, translation: Translation) -> None:
        self._program, self._translation, self._model = program, translation, translation.model
        model = self._model
        workload = Workload(model.name, "random", model.parity_batch_size, model.optimizer, "fp32", 1)
        forward = msgspec.structs.replace(workload, pass_="forward")
        exact = {**float64_tolerance(model, workload), **float64_tolerance(model, forward)}
        self.tolerance = {kind: max(one, program.rounding) for kind, one in exact.items()}
        self.initial = program.variables()

    def compare(self, training: _Training, folder: Path) -> list[TensorComparison]:
        """Train both, and compare evaluation, loss, gradients, weights and running statistics of each step."""
        (folder / "program").mkdir(parents=True)
        (folder / "network").mkdir()
        actual, tensors = self._train_program(training, folder / "program")
        expected = list(self._train_network(training, folder / "network"))
        zero = find_zero_gradients([state.gradients for state in expected], self.tolerance["gradient"])
        for step, pair in enumerate(zip(actual, expected, strict=True)):
            tensors += float64_errors(range(step), *pair, self.tolerance, self._model.optimizer, zero)
        return tensors

    def _train_program(self, training: _Training, folder: Path) -> tuple[list[State], list[TensorComparison]]:
        """Return the states at each batch, and the comparisons of the output in evaluation, at the same weights."""
        program, translation = self._program, self._translation
        variables = {name: np.array(value) for name, value in self.initial.items()}
        for name, slot in translation.slots.items():
            variables[slot.variable].reshape(-1)[slot.indices] = training.weights[name]
        program.start(variables)
        states, evaluations = [], []
        for step, batch in enumerate(training.batches):
            weights = canonical_weights(translation, program.variables())
            with self._watched("evaluation", batch):
                output = program.evaluate(batch.inputs)
            np.savez(folder / "logits.npz", logits=output)
            expected = logits(self._model, weights, batch.inputs)
            if translation.returns_probabilities or translation.returns_log_probabilities:
                expected = expected - np.logaddexp.reduce(expected, axis=-1, keepdims=True)
            if translation.returns_probabilities:
                expected = np.exp(expected)
            evaluations.append(logits_error("float64", step, folder / "logits.npz", expected, self.tolerance["logits"]))
            with self._watched("training", batch):
                loss, gradients = program.train(*batch)
            read = {name: translation.slots[name].read(gradients) for name in self._model.weight_shapes()}
            states.append(_write_state(folder, step, loss, read, weights))
        return states, evaluations

    def _train_network(self, training: _Training, folder: Path) -> Iterator[State]:
        """Yield the state at each batch."""
        model, optimizer = self._model, self._model.optimizer
        optimizers: dict[str, OptimizerState] = {}
        values: dict[str, Any] = {name: np.asarray(value, np.float64) for name, value in training.weights.items()}
        for step, (inputs, labels, masks) in enumerate(training.batches):
            result = loss_and_gradients(model, values, inputs, labels, self._program.conventions, masks)
            yield _write_state(folder, step, result.loss, result.gradients, values)
            for name, gradient in result.gradients.items():
                values[name], optimizers[name] = apply_update(
                    optimizer, optimizer.learning_rate_at(step), values[name], gradient, optimizers.get(name, {})
                )
            values |= result.state

    @contextlib.contextmanager
    def _watched(self, activity: str, batch: _Batch) -> Iterator[None]:
        """Raise BadInput if the program draws random numbers; those of its dropout are given."""
        before = self._generators()
        yield
        drawn = [name for name, state in self._generators().items() if state != before.get(name, state)]
        if drawn:
            name = self._model.name.partition(FINGERPRINT_MARK)[0]
            raise BadInput(
                f"{name}: {activity} with a batch of {len(batch.labels)} draws random numbers from {', '.join(drawn)}:"
                " expected none but those of dropout in training"
            )

    def _generators(self) -> dict[str, bytes]:
        shared = {"Python": pickle.dumps(random.getstate()), "NumPy": pickle.dumps(np.random.get_state())}  # noqa: NPY002
        return shared | dict(self._program.generators())


def _write_state(folder: Path, step: int, loss: float, gradients: Weights, weights: Weights) -> State:
    state = State(loss, folder / f"{step}.gradients.npz", folder / f"{step}.weights.npz")
    np.savez(state.gradients, **dict[str, Any](gradients))
    np.savez(state.weights, **dict[str, Any](weights))
    return state
