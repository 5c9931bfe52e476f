"""The layers of `core.layers` as Keras has them, channels last."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, assert_never

import keras
from keras import layers, ops

from polybench.core.job import EXACT, Conventions, Job
from polybench.core.layer_base import Shape
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Named,
    ReLU,
    Residual,
    walk,
)
from polybench.core.model import Model
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime
from polybench.engines.support.keras import recurrent

_KERNEL = {"weight": "kernel", "bias": "bias"}
_ATTRIBUTES = {
    layers.Embedding: {"weight": "embeddings"},
    layers.Conv2D: _KERNEL,
    layers.Dense: _KERNEL,
    layers.BatchNormalization: {
        "weight": "gamma",
        "bias": "beta",
        "running_mean": "moving_mean",
        "running_variance": "moving_variance",
    },
}
"""Where Keras's layers have the canonical tensors."""

_SOURCES = {
    "running_variance": "Keras's BatchNormalization: moving_variance takes keras.ops.moments, divided by n",
    "batch_norm_sums": "tf.nn.moments, Eigen's InnerMostDimPreserver, TensorReduction.h",
}
_INPUT = "0input"
"""No layer's name begins with a digit; Keras's own, `input_layer`, may be one."""

_LARGEST_SEED = 0x7FFFFFFF
"""Keras on PyTorch keeps a seed in 32 bits with a sign."""

_EIGEN_SUMS = 4
"""Eigen's, over all axes but the last on the CPU, with any number of threads. A small value added to a large
float32 sum is lost, all in the same direction, so over 262,144 pixels a variance is 4e-4 off."""


class Network(NamedTuple):
    """A network, and those of its layers that have names."""

    model: Any
    named: dict[str, Any]

    def variables(self, names: Iterable[str]) -> dict[str, Any]:
        """Keras's variables by the canonical names, `layer_name.part`."""
        found = {}
        for name in names:
            layer, _, part = name.rpartition(".")
            found[name] = _variable(self.named[layer], part)
        return found


def _variable(layer: Any, part: str) -> Any:
    """The layer's variable for a canonical part."""
    if isinstance(layer, layers.LSTM | layers.Bidirectional):
        return recurrent.variable(layer, part)
    return getattr(layer, _ATTRIBUTES[type(layer)][part])


def network(model: Model, *, masks_for: int | None, seed: int, lstm_options: Mapping[str, Any]) -> Network:
    """`model` as a `keras.Sequential` or, with residual blocks, in Keras's functional way.

    Its dropout layers are `GivenDropout` with `masks_for`, for batches of so many images; otherwise they draw
    from `seed` and their names. `lstm_options` are `recurrent.options_of` the engine's variants.
    """
    builder = _Builder(masks_for, seed, {}, lstm_options)
    image = _input(model.input_shape, tokens=model.vocabulary is not None)
    if any(isinstance(layer, Residual) for layer in model.layers):
        return Network(keras.Model(image, builder.through(model.layers, image)), builder.named)
    return Network(keras.Sequential([image, *builder.sequence(model.layers)]), builder.named)


def layers_alone(sequence: Sequence[Layer], shape: Shape, lstm_options: Mapping[str, Any]) -> Network:
    """The layers as a model of their own, for inputs of `shape` (canonical, for one image or sequence)."""
    builder = _Builder(masks_for=None, seed=0, named={}, lstm_options=lstm_options)
    x = _input(shape, tokens=isinstance(sequence[0], Embedding))
    return Network(keras.Model(x, builder.through(sequence, x)), builder.named)


def _input(shape: Shape, *, tokens: bool) -> Any:
    """Keras's, for images channels last, of what canonically has this shape."""
    if tokens:
        return keras.Input(shape, dtype="int32", name=_INPUT)
    return keras.Input((*shape[1:], shape[0]) if len(shape) == 3 else shape, name=_INPUT)


def conventions(job: Job) -> Conventions:
    """What Keras by design computes differently in this network, with what it computes with here."""
    if not any(isinstance(layer, BatchNorm) for layer in walk(job.model.layers)):
        return EXACT
    by_eigen = (
        keras.backend.backend() == "tensorflow"
        and job.device == "cpu"
        and job.dtype == "float32"
        and "xla" not in job.variants
    )
    sums = _EIGEN_SUMS if by_eigen else EXACT.batch_norm_sums
    return Conventions(running_variance="biased", batch_norm_sums=sums, sources=_SOURCES)


class GivenDropout(layers.Layer):  # type: ignore[misc]
    """Multiplies with a mask that is assigned before each step; see `engines.support.dropout_masks`."""

    def __init__(self, batch_size: int, name: str) -> None:
        super().__init__(name=name)
        self._batch_size = batch_size

    def build(self, input_shape: Any) -> None:
        self.mask = self.add_weight((self._batch_size, *input_shape[1:]), "ones", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs * ops.cast(self.mask, inputs.dtype) if training else inputs


class _Builder(NamedTuple):
    """Makes Keras's layers, and notes those that have names in `named`."""

    masks_for: int | None
    seed: int
    named: dict[str, Any]
    lstm_options: Mapping[str, Any]

    def through(self, sequence: Sequence[Layer], x: Any) -> Any:
        """What comes out of the layers, one after the other, for a symbolic input."""
        for layer in self.sequence(sequence):
            x = layer(x)
        return x

    def sequence(self, sequence: Sequence[Layer]) -> Iterator[Any]:
        """Keras's layers, sometimes one more than here; residual blocks are functions of symbolic inputs."""
        for layer in sequence:
            if isinstance(layer, Conv) and _padding(layer) is None:
                yield layers.ZeroPadding2D(layer.pad)
            made = self.layer(layer)
            if isinstance(layer, Named):
                self.named[layer.name] = made
            yield made

    def layer(self, layer: Layer) -> Any:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
        match layer:
            case Conv():
                return layers.Conv2D(
                    layer.outputs,
                    layer.kernel,
                    strides=layer.stride,
                    padding=_padding(layer) or "valid",
                    use_bias=layer.bias,
                    name=_name(layer),
                )
            case Dense():
                return layers.Dense(layer.outputs, name=_name(layer))
            case BatchNorm():
                momentum = 1 - layer.momentum  # Keras's is the share of what was
                return layers.BatchNormalization(momentum=momentum, epsilon=layer.epsilon, name=_name(layer))
            case Dropout():
                if self.masks_for is not None:
                    return GivenDropout(self.masks_for, _name(layer))
                seed = zlib.crc32(f"{self.seed} {layer.name}".encode()) & _LARGEST_SEED
                return layers.Dropout(layer.rate, seed=seed, name=_name(layer))
            case MaxPool():
                return layers.MaxPooling2D(layer.size, layer.stride)
            case AveragePool():
                return layers.AveragePooling2D(layer.size, layer.stride)
            case GlobalAveragePool():
                return layers.GlobalAveragePooling2D()
            case ReLU():
                return layers.ReLU()
            case Flatten():
                return layers.Flatten()
            case Residual():
                return lambda x: layers.Add()([self.through(layer.body, x), self.through(layer.shortcut, x)])
            case Embedding():
                return layers.Embedding(layer.vocabulary, layer.features, name=_name(layer))
            case LSTM():
                return recurrent.lstm(layer, _name(layer), self.lstm_options)
            case MeanOverTime():
                return layers.GlobalAveragePooling1D()
            case _:
                assert_never(layer)


def _name(layer: Named) -> str:
    """For Keras, which on PyTorch takes no name with a dot."""
    return layer.name.replace(".", "_")


def _padding(conv: Conv) -> str | None:
    """Keras's own padding, or None where it has none with these zeros and they take a layer of their own.

    Its "same" with a stride adds more zeros at the end than at the start, or not, as the image's size wants.
    """
    if conv.pad == 0:
        return "valid"
    return "same" if conv.stride == 1 and 2 * conv.pad == conv.kernel - 1 else None
