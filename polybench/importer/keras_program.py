"""A user's Keras model in float64, for the proof: its layers built again from their configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import msgspec
import numpy as np
from keras import ops

from polybench.engines.base import Array
from polybench.engines.job import Job
from polybench.engines.keras.engine import load_backend, set_float64_support
from polybench.engines.shared.keras_emitter import layer_program
from polybench.engines.shared.keras_layout import batch_to_keras, flattened_shapes
from polybench.engines.shared.keras_state import conventions
from polybench.engines.shared.program import import_program
from polybench.errors import BadInput
from polybench.importer.graph import Translation
from polybench.importer.keras_graph import KerasTranslation
from polybench.importer.proof import Result, batch_sizes
from polybench.networks import layers as spec
from polybench.schema.options import Workload

_FLOAT32_CONSTANTS = 1e-7
"""Relative error of Keras's GELU and attention in float64, whose constants it rounds to float32 (2e-8 seen)."""


class KerasProgram:
    """A clone of the model in float64, with the same backend; its dropout has given masks.

    A step is `train_on_batch`, with the losses of the model's layers and the loss that it was compiled with, if any.
    """

    def __init__(self, model: Any, translated: KerasTranslation) -> None:
        network = translated.translation.model
        workload = Workload(network.name, "random", network.parity_batch_size, network.optimizer, "fp32", 1)
        self._job = Job(network, workload, "cpu", "float64")
        self._backend = load_backend(keras.backend.backend())
        self._floatx = keras.config.floatx()
        self.conventions = conventions(self._job)
        small, large, vocabulary = batch_sizes(network)
        self._batch_size = max(small, large, *vocabulary)
        self._flattened = flattened_shapes(network)
        text = layer_program(network.layers, network.input_shape, "float64", batch_size=self._batch_size)
        self._given_dropout: Any = getattr(import_program(text, None), "GivenDropout", ())  # without dropout, no class
        self._clones: dict[int, Any] = {}
        self._variables: dict[str, Any] = {}
        rounds = any(isinstance(layer, spec.GELU | spec.Attention) for layer in spec.walk(network.layers))
        self.rounding = _FLOAT32_CONSTANTS if rounds else 0.0
        self._set_float64(True)
        try:
            self._build(model, translated)
        except BaseException:
            self.close()
            raise

    def _build(self, model: Any, translated: KerasTranslation) -> None:
        self._clone = _clone_uncompiled(model, self._build_again)
        for original, clone in self._pairs(model):
            self._variables[original.path] = clone
            clone.assign(np.asarray(original.numpy(), np.float64))
        self._masks = {
            name: self._clones[id(layer)]
            for name, layer in translated.layers.items()
            if isinstance(self._clones.get(id(layer)), self._given_dropout)
        }
        self._compile(model, translated.translation)

    def _compile(self, model: Any, translation: Translation) -> None:
        loss = _compiled_loss(model) or keras.losses.SparseCategoricalCrossentropy(
            from_logits=not translation.returns_probabilities
        )
        self._takes_one_hot = isinstance(loss, keras.losses.CategoricalCrossentropy)
        self._classes = translation.model.classes
        optimizer = translation.model.optimizer
        rate, momentum = np.float64(optimizer.learning_rate), np.float64(optimizer.momentum or 0.0)
        self._optimizer = RecordingSGD(rate, momentum)
        self._optimizer.build(self._clone.trainable_variables)
        weights = model.get_compile_config().get("loss_weights")
        # XLA compiles longer than the steps take, except on JAX, which computes everything with XLA.
        self._clone.compile(self._optimizer, loss, weights, jit_compile=keras.backend.backend() == "jax")

    def _build_again(self, layer: Any) -> Any:
        if isinstance(layer, keras.layers.Dropout):
            clone: Any = self._given_dropout(self._batch_size, layer.name)
            clone.dtype_policy = keras.DTypePolicy("float64")
        else:
            clone = type(layer).from_config(_in_float64(layer.get_config()))
        self._clones[id(layer)] = clone
        return clone

    def _pairs(self, model: Any) -> Any:
        for layer in model._flatten_layers(include_self=False):
            clone = self._clones.get(id(layer))
            if clone is not None and not isinstance(clone, self._given_dropout):
                yield from (
                    pair for pair in zip(layer.variables, clone.variables, strict=True) if "float" in str(pair[0].dtype)
                )

    def variables(self) -> dict[str, Array]:  # noqa: D102 - of the protocol
        return {path: np.array(variable.numpy(), np.float64) for path, variable in self._variables.items()}

    def start(self, values: Mapping[str, Array]) -> None:  # noqa: D102
        for path, variable in self._variables.items():
            variable.assign(values[path])
        for state in self._optimizer.variables:
            if state is not self._optimizer.learning_rate:
                state.assign(np.zeros(state.shape))

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:  # noqa: D102
        for name, mask in masks.items():
            variable = self._masks[name].mask
            value = np.zeros(variable.shape)
            value[: len(mask)] = batch_to_keras(mask, self._flattened.get(name))
            variable.assign(value)
        targets = np.eye(self._classes)[labels] if self._takes_one_hot else labels
        logs = self._clone.train_on_batch(_to_keras(inputs), targets, return_dict=True)
        paths = {id(variable): path for path, variable in self._variables.items()}
        trained = [paths[id(variable)] for variable in self._clone.trainable_variables]
        gradients = (np.array(one.numpy()) for one in self._optimizer.gradients)
        return Result(float(logs["loss"]), dict(zip(trained, gradients, strict=True)))

    def evaluate(self, inputs: Array) -> Array:  # noqa: D102
        # Unlike `predict`, a call leaves the arguments of layers as they are, such as `training=True` of a dropout.
        (output,) = keras.tree.flatten(self._clone(_to_keras(inputs)))
        return np.asarray(ops.convert_to_numpy(output))

    def generators(self) -> Mapping[str, bytes]:  # noqa: D102
        states = [one for one in self._clone.variables if "float" not in str(one.dtype)]
        return {f"Keras's {one.path}": np.asarray(one.numpy()).tobytes() for one in states}

    def close(self) -> None:
        """Restore Keras's settings; the user's model is unchanged."""
        self._set_float64(False)

    def _set_float64(self, on: bool) -> None:
        """Let Keras and its backend compute in float64; TensorFlow always does."""
        keras.config.set_floatx("float64" if on else self._floatx)
        if keras.backend.backend() == "jax":
            self._backend.configure_process(msgspec.structs.replace(self._job, dtype="float64" if on else "float32"))
        if keras.backend.backend() != "tensorflow" or on:
            set_float64_support(on)


class RecordingSGD(type(keras.optimizers.SGD())):  # type: ignore[misc] # on PyTorch, Keras substitutes a class
    """SGD that keeps the gradients of the last step in `gradients`, in the order of the variables."""

    def build(self, variables: Any) -> None:
        """Add the variables of the gradients."""
        super().build(variables)
        self.gradients = [self.add_variable_from_reference(one, name="gradient") for one in variables]

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Keep the gradients, and take a step."""
        grads = list(grads)
        for variable, gradient in zip(self.gradients, grads, strict=True):
            self.assign(variable, ops.zeros_like(variable))
            self.assign_add(variable, gradient)  # TensorFlow adds the rows of an embedding, and assigns only to them
        return super().apply(grads, trainable_variables)


def _compiled_loss(model: Any) -> Any:
    """Return the loss that the model was compiled with, in float64; BadInput if it is not a cross-entropy."""
    loss = keras.losses.get(model.loss) if model.compiled else None
    name = getattr(loss, "__name__", type(loss).__name__)
    kinds = {
        "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
        "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    }
    if loss is None:
        return None
    if loss is getattr(keras.losses, name, None) and name in kinds:
        return kinds[name]()
    if type(loss) in kinds.values():
        return type(loss).from_config(_in_float64(loss.get_config()))
    raise BadInput(f"{model.name}: compiled with the loss {name}: expected a categorical cross-entropy")


def _clone_uncompiled(model: Any, build_again: Any) -> Any:
    """Clone a model without its loss and optimizer."""
    compiled = [one for one in (model, *model._flatten_layers(include_self=False)) if getattr(one, "compiled", False)]
    try:
        for one in compiled:
            one.compiled = False
        return keras.models.clone_model(model, clone_function=build_again, recursive=True)
    finally:
        for one in compiled:
            one.compiled = True


def _to_keras(inputs: Array) -> Any:
    return ops.convert_to_tensor(np.ascontiguousarray(batch_to_keras(inputs)))


def _in_float64(config: Any) -> Any:
    """Return the configuration of a layer, and of the layers in it, with another dtype."""
    if isinstance(config, list | tuple):
        return type(config)(map(_in_float64, config))
    if not isinstance(config, dict):
        return config
    return {key: "float64" if key == "dtype" else _in_float64(value) for key, value in config.items()}
