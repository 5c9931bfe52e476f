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
from polybench.engines.shared.keras_layers import FixedMaskDropout, conventions
from polybench.engines.shared.keras_layout import batch_to_keras, flattened_shapes
from polybench.importer.keras_graph import KerasTranslation
from polybench.importer.proof import Result
from polybench.schema.options import Workload


class KerasProgram:
    """A clone of the model in float64, with the same backend; its dropout has given masks."""

    def __init__(self, model: Any, translated: KerasTranslation) -> None:
        network = translated.translation.model
        workload = Workload(network.name, "random", network.parity_batch_size, network.optimizer, "fp32", 1)
        self._job = Job(network, workload, "cpu", "float64")
        self._backend = load_backend(keras.backend.backend())
        self._set_float64(True)
        self._batch_size = network.parity_batch_size
        self._clones: dict[int, Any] = {}
        self._clone = keras.models.clone_model(model, clone_function=self._build_again, recursive=True)
        self._variables: dict[str, Any] = {}
        for original, clone in self._pairs(model):
            self._variables[original.path] = clone
            clone.assign(np.asarray(original.numpy(), np.float64))
        self._masks = {
            name: self._clones[id(layer)]
            for name, layer in translated.layers.items()
            if isinstance(self._clones.get(id(layer)), FixedMaskDropout)
        }
        self._flattened = flattened_shapes(network)
        self.conventions = conventions(self._job)
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=not translated.translation.returns_probabilities, dtype="float64"
        )
        self._gradients = self._backend.gradients(self._clone, loss)

    def _build_again(self, layer: Any) -> Any:
        if isinstance(layer, keras.layers.Dropout):
            clone: Any = FixedMaskDropout(self._batch_size, layer.name)
            clone.dtype_policy = keras.DTypePolicy("float64")
        else:
            clone = type(layer).from_config(_in_float64(layer.get_config()))
        self._clones[id(layer)] = clone
        return clone

    def _pairs(self, model: Any) -> Any:
        for layer in model._flatten_layers(include_self=False):
            clone = self._clones.get(id(layer))
            if clone is not None and not isinstance(clone, FixedMaskDropout):
                yield from (
                    pair for pair in zip(layer.variables, clone.variables, strict=True) if "float" in str(pair[0].dtype)
                )

    def variables(self) -> dict[str, Array]:  # noqa: D102 - of the protocol
        return {path: np.array(variable.numpy(), np.float64) for path, variable in self._variables.items()}

    def assign(self, values: Mapping[str, Array]) -> None:  # noqa: D102
        for path, variable in self._variables.items():
            variable.assign(values[path])

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:  # noqa: D102
        for name, mask in masks.items():
            self._masks[name].mask.assign(batch_to_keras(mask, self._flattened.get(name)))
        images = ops.convert_to_tensor(np.ascontiguousarray(batch_to_keras(inputs)))
        loss, gradients = self._gradients(images, ops.convert_to_tensor(labels))
        paths = {id(variable): path for path, variable in self._variables.items()}
        trained = [paths[id(variable)] for variable in self._clone.trainable_variables]
        values = (np.asarray(ops.convert_to_numpy(ops.convert_to_tensor(one))) for one in gradients)
        return Result(float(loss), dict(zip(trained, values, strict=True)))

    def close(self) -> None:
        """Restore Keras's settings; the user's model is unchanged."""
        self._set_float64(False)

    def _set_float64(self, on: bool) -> None:
        """Let Keras and its backend compute in float64; TensorFlow always does."""
        if keras.backend.backend() == "jax":
            self._backend.configure_process(msgspec.structs.replace(self._job, dtype="float64" if on else "float32"))
        if keras.backend.backend() != "tensorflow" or on:
            set_float64_support(on)


def _in_float64(config: Any) -> Any:
    """Return the configuration of a layer, and of the layers in it, with another dtype."""
    if isinstance(config, list | tuple):
        return type(config)(map(_in_float64, config))
    if not isinstance(config, dict):
        return config
    return {key: "float64" if key == "dtype" else _in_float64(value) for key, value in config.items()}
