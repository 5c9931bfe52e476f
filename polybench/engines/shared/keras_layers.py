"""Keras layers, channels last, for the layers of `networks.layers`."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops, saving

from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.engines.shared.keras_layout import keras_padding
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.sequence_layers import REVERSE

_KERNEL = {"weight": "kernel", "bias": "bias"}
_ATTRIBUTES = {
    layers.Embedding: {"weight": "embeddings"},
    layers.Conv2D: _KERNEL,
    layers.DepthwiseConv2D: _KERNEL,
    layers.LayerNormalization: {"weight": "gamma", "bias": "beta"},
    layers.GroupNormalization: {"weight": "gamma", "bias": "beta"},
    layers.Dense: _KERNEL,
    layers.BatchNormalization: {
        "weight": "gamma",
        "bias": "beta",
        "running_mean": "moving_mean",
        "running_variance": "moving_variance",
    },
}
"""Attribute of each canonical tensor in Keras's layers."""

_SOURCES = {
    "running_variance": "Keras's BatchNormalization: moving_variance uses keras.ops.moments, divided by n",
    "batch_norm_sums": "tf.nn.moments, Eigen's InnerMostDimPreserver, TensorReduction.h",
}
_INPUT = "input"
"""Name of the input layer. Keras names layers without a canonical name, such as `re_lu`, and never one `input`."""

_OWN = "0"
"""First character of the names of layers with a canonical name; names that Keras chooses begin with a letter."""

_MAX_SEED = 0x7FFFFFFF
"""Largest seed: Keras on PyTorch stores it as a signed 32-bit integer."""

_EIGEN_PARTIAL_SUMS = 4
"""Partial sums in Eigen's CPU reduction over all axes but the last, for any number of threads.

Adding small values to a large float32 sum loses digits, always in the same direction: over 262,144 pixels, a
variance is off by 4e-4."""

_OPTIONS = {"unrolled": {"unroll": True}, "no_fusion": {"use_cudnn": False}}
"""Options of `keras.layers.LSTM` by the engine's variant."""

_LSTM_ATTRIBUTES = {"weight": "kernel", "recurrent": "recurrent_kernel", "bias": "bias"}


class Network(NamedTuple):
    """Keras model and its layers with canonical names."""

    model: Any
    named_layers: dict[str, Any]

    def variables(self, names: Iterable[str]) -> dict[str, Any]:
        """Keras variables by canonical name, `layer_name.tensor`."""
        variables = {}
        for name in names:
            layer, _, tensor = name.rpartition(".")
            variables[name] = _variable(self.named_layers[layer], tensor)
        return variables


def _variable(layer: Any, tensor: str) -> Any:
    """Return the layer's variable for a canonical tensor."""
    if isinstance(layer, layers.LSTM | layers.Bidirectional):
        return lstm_variable(layer, tensor)
    if isinstance(layer, layers.MultiHeadAttention):
        projection, _, part = tensor.rpartition("_")
        return getattr(getattr(layer, f"{projection}_dense"), _KERNEL[part])
    return getattr(layer, _ATTRIBUTES.get(type(layer), {}).get(tensor, tensor))


def build_network(model: Model, *, mask_batch_size: int | None, seed: int, lstm_options: Mapping[str, Any]) -> Network:
    """Build `model` as a `keras.Sequential` or, with calls that are not layers, with Keras's functional API.

    `mask_batch_size` is the batch size of fixed dropout masks (`FixedMaskDropout`); None for Keras's own dropout, whose
    generators are seeded with `seed` and the layer names.
    """
    builder = _Builder(mask_batch_size, seed, {}, lstm_options)
    image = _input(model.input_shape, "int32" if model.vocabulary_size is not None else None)
    if any(isinstance(layer, _FUNCTIONS) for layer in model.layers):
        output = builder.apply(model.layers, image, model.input_shape)
        return Network(keras.Model(image, output), builder.named_layers)
    sequence = builder.build_all(model.layers, model.input_shape)
    return Network(keras.Sequential([image, *sequence]), builder.named_layers)


_FUNCTIONS = (spec.Residual, spec.Attention, spec.FirstPosition)
"""Layers that are functions of a symbolic input here."""


def standalone_layers(
    sequence: Sequence[spec.Layer], shape: spec.Shape, lstm_options: Mapping[str, Any], dtype: str
) -> Network:
    """Build the layers as a separate model for inputs of `shape` (canonical, of one image or sequence) and `dtype`."""
    builder = _Builder(mask_batch_size=None, seed=0, named_layers={}, lstm_options=lstm_options)
    x = _input(shape, dtype)
    return Network(keras.Model(x, builder.apply(sequence, x, shape)), builder.named_layers)


def _input(shape: spec.Shape, dtype: str | None) -> Any:
    """Make the Keras input, channels last for images, of a canonical shape; by default its dtype is Keras's float."""
    return keras.Input((*shape[1:], shape[0]) if len(shape) == 3 else shape, dtype=dtype, name=_INPUT)


def conventions(job: Job) -> NumericalConventions:
    """Return the deviations that Keras and its backend have by design in this network."""
    if not any(isinstance(layer, spec.BatchNorm) for layer in spec.walk(job.model.layers)):
        return NO_DEVIATIONS
    by_eigen = (
        keras.backend.backend() == "tensorflow"
        and job.device == "cpu"
        and job.dtype == "float32"
        and "xla" not in job.variants
    )
    sums = _EIGEN_PARTIAL_SUMS if by_eigen else NO_DEVIATIONS.batch_norm_sums
    return NumericalConventions(running_variance="biased", batch_norm_sums=sums, sources=_SOURCES)


def make_loss(model: Model) -> Any:
    """Make the mean cross-entropy of logits, over inputs and positions, with the model's label smoothing."""
    if not model.label_smoothing:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return SmoothedCrossentropy(model.classes, model.label_smoothing)


class SmoothedCrossentropy(keras.losses.CategoricalCrossentropy):  # type: ignore[misc]
    """Keras's cross-entropy with label smoothing, which needs one-hot labels."""

    def __init__(self, classes: int, label_smoothing: float) -> None:
        super().__init__(from_logits=True, label_smoothing=label_smoothing)
        self._classes = classes

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return super().call(ops.one_hot(ops.cast(y_true, "int32"), self._classes, dtype=y_pred.dtype), y_pred)


class FixedMaskDropout(layers.Layer):  # type: ignore[misc]
    """Multiplies its input by a mask assigned before each step; see `engines.shared.batches.dropout_masks`.

    `batch_size` is that of the mask; a smaller batch gets its first rows.
    """

    def __init__(self, batch_size: int, name: str) -> None:
        super().__init__(name=name)
        self._batch_size = batch_size

    def build(self, input_shape: Any) -> None:
        self.mask = self.add_weight((self._batch_size, *input_shape[1:]), "ones", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs * ops.cast(self.mask[: ops.shape(inputs)[0]], inputs.dtype) if training else inputs


class Positions(layers.Layer):  # type: ignore[misc]
    """Adds a trained row to each position of a sequence."""

    def __init__(self, length: int, name: str) -> None:
        super().__init__(name=name)
        self._length = length

    def build(self, input_shape: Any) -> None:
        self.weight = self.add_weight((self._length, input_shape[-1]), name="weight")

    def call(self, inputs: Any) -> Any:
        return inputs + ops.cast(self.weight[: inputs.shape[1]], inputs.dtype)


class ClassToken(layers.Layer):  # type: ignore[misc]
    """Adds a trained position before the first one."""

    def build(self, input_shape: Any) -> None:
        self.token = self.add_weight((input_shape[-1],), name="token")

    def call(self, inputs: Any) -> Any:
        token = ops.cast(self.token, inputs.dtype)
        return ops.concatenate([ops.broadcast_to(token, (ops.shape(inputs)[0], 1, token.shape[0])), inputs], axis=1)


class PaddedMaxPool(layers.MaxPooling2D):  # type: ignore[misc]
    """Maximum of windows with any padding, which is never the maximum."""

    def __init__(self, layer: spec.MaxPool) -> None:
        super().__init__(layer.size, layer.stride)
        self._pads = ((0, 0), *layer.pads.axes, (0, 0))

    def call(self, inputs: Any) -> Any:
        return super().call(ops.pad(inputs, self._pads, constant_values=-math.inf))


class ImageMean(layers.AveragePooling2D):  # type: ignore[misc]
    """Mean of the pixels of the image in windows of a padded image."""

    def __init__(self, layer: spec.AveragePool, shape: spec.Shape) -> None:
        super().__init__(layer.size, layer.stride)
        self._is_image = np.pad(np.ones((1, *shape[1:], 1)), ((0, 0), *layer.pads.axes, (0, 0)))

    def call(self, inputs: Any) -> Any:
        return super().call(inputs) / super().call(ops.cast(self._is_image, inputs.dtype))


class TiedDense(layers.Layer):  # type: ignore[misc]
    """A dense layer without weights of its own: it uses those of an embedding or of another dense layer."""

    def __init__(self, owner: Any, name: str) -> None:
        super().__init__(name=name)
        self._owner = owner

    def call(self, inputs: Any) -> Any:
        is_table = isinstance(self._owner, layers.Embedding)
        weight = ops.cast(self._owner.embeddings if is_table else self._owner.kernel, inputs.dtype)
        return ops.matmul(inputs, ops.transpose(weight) if is_table else weight)


class _Builder(NamedTuple):
    """Builds Keras layers and collects those with canonical names in `named_layers`."""

    mask_batch_size: int | None
    seed: int
    named_layers: dict[str, Any]
    lstm_options: Mapping[str, Any]

    def apply(self, sequence: Sequence[spec.Layer], x: Any, shape: spec.Shape) -> Any:
        """Apply the layers in order to a symbolic input of the canonical `shape`."""
        for layer in self.build_all(sequence, shape):
            x = layer(x)
        return x

    def build_all(self, sequence: Sequence[spec.Layer], shape: spec.Shape) -> Iterator[Any]:
        """Yield Keras layers, and extra padding layers if needed; a residual block becomes a function."""
        for layer in sequence:
            if isinstance(layer, spec.Conv | spec.AveragePool) and keras_padding(layer, shape) is None:
                yield layers.ZeroPadding2D(layer.pads.axes)
            keras_layer = self.build(layer, shape)
            if isinstance(layer, spec.Named):
                self.named_layers[layer.name] = keras_layer
            if isinstance(layer, spec.Attention):
                yield partial(_attend_to_itself, keras_layer, layer.causal)
            else:
                yield keras_layer
            if isinstance(layer, spec.Patches):
                yield layers.Reshape((-1, layer.outputs))
            shape = layer.output_shape(shape)

    def build(self, layer: spec.Layer, shape: spec.Shape) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case per kind of layer
        match layer:
            case spec.Conv() if layer.groups > 1 and layer.groups == layer.inputs:
                return layers.DepthwiseConv2D(
                    layer.kernel,
                    strides=layer.stride,
                    padding=keras_padding(layer, shape) or "valid",
                    depth_multiplier=layer.outputs // layer.inputs,
                    use_bias=layer.bias,
                    name=_name(layer),
                )
            case spec.Conv():
                return layers.Conv2D(
                    layer.outputs,
                    layer.kernel,
                    strides=layer.stride,
                    padding=keras_padding(layer, shape) or "valid",
                    groups=layer.groups,
                    use_bias=layer.bias,
                    name=_name(layer),
                )
            case spec.Dense(tied=str() as tied):
                if tied not in self.named_layers:
                    raise unsupported_layer("Keras", layer, "a tied weight of another model")
                return TiedDense(self.named_layers[tied], _name(layer))
            case spec.Dense():
                return layers.Dense(layer.outputs, use_bias=layer.bias, name=_name(layer))
            case spec.LayerNorm():
                return layers.LayerNormalization(epsilon=layer.epsilon, center=layer.bias, name=_name(layer))
            case spec.GroupNorm():
                return layers.GroupNormalization(layer.groups, epsilon=layer.epsilon, name=_name(layer))
            case spec.BatchNorm():
                momentum = 1 - layer.momentum  # Keras's momentum is the weight of the old value
                return layers.BatchNormalization(momentum=momentum, epsilon=layer.epsilon, name=_name(layer))
            case spec.Dropout():
                if self.mask_batch_size is not None:
                    return FixedMaskDropout(self.mask_batch_size, _name(layer))
                seed = zlib.crc32(f"{self.seed} {layer.name}".encode()) & _MAX_SEED
                return layers.Dropout(layer.rate, seed=seed, name=_name(layer))
            case spec.MaxPool() | spec.AveragePool():
                return _pool(layer, shape)
            case spec.GlobalAveragePool():
                return layers.GlobalAveragePooling2D()
            case spec.ReLU():
                return layers.ReLU()
            case spec.ReLU6():
                return layers.ReLU(max_value=6)
            case spec.GELU():
                return layers.Activation(partial(_gelu, is_tanh=layer.approximate == "tanh"))
            case spec.SiLU():
                return layers.Activation("silu")
            case spec.Flatten():
                return layers.Flatten()
            case spec.Residual():
                return lambda x: layers.Add()([self.apply(one, x, shape) for one in (layer.body, layer.shortcut)])
            case spec.Embedding():
                return layers.Embedding(layer.vocabulary, layer.features, name=_name(layer))
            case spec.LSTM():
                return lstm(layer, _name(layer), self.lstm_options)
            case spec.MeanOverTime():
                return layers.GlobalAveragePooling1D()
            case spec.Attention():
                size = layer.features // layer.heads
                attention = layers.MultiHeadAttention(layer.heads, size, use_bias=layer.bias, name=_name(layer))
                # Keras on TensorFlow rounds a Python float to float32 even if the layer is in float64.
                attention._inverse_sqrt_key_dim = np.float64(1 / math.sqrt(size))
                return attention
            case spec.Positions():
                return Positions(layer.length, _name(layer))
            case spec.Patches():
                return layers.Conv2D(layer.outputs, layer.size, layer.size, use_bias=layer.bias, name=_name(layer))
            case spec.ClassToken():
                return ClassToken(name=_name(layer))
            case spec.FirstPosition():
                return lambda x: x[:, 0]
            case _:
                raise unsupported_layer("Keras", layer)


def _gelu(x: Any, *, is_tanh: bool) -> Any:
    """Apply Keras's GELU; in float64 with exact constants, which TensorFlow's rounds to float32 (tf.nn.gelu)."""
    if x.dtype != "float64":
        return keras.activations.gelu(x, approximate=is_tanh)
    if is_tanh:
        return x * (1 + ops.tanh(np.float64(math.sqrt(2 / math.pi)) * (x + np.float64(0.044715) * x**3))) / 2
    return x * (1 + ops.erf(x * np.float64(math.sqrt(0.5)))) / 2


def _attend_to_itself(attention: Any, causal: bool, x: Any) -> Any:
    """Apply self-attention; in float64 without `jax.nn.dot_product_attention`, whose softmax is in float32.

    Keras does not use it if the scores are an output as well.
    """
    if keras.backend.backend() == "jax" and keras.config.floatx() == "float64":
        y, _ = attention(x, x, use_causal_mask=causal, return_attention_scores=True)
        return y
    return attention(x, x, use_causal_mask=causal)


def _name(layer: spec.Named) -> str:
    """Keras name of a layer, unlike every other one; Keras on PyTorch rejects dots."""
    return _OWN + layer.name.replace(".", "_")


def _pool(layer: spec.MaxPool | spec.AveragePool, shape: spec.Shape) -> Any:
    padding = keras_padding(layer, shape)
    if isinstance(layer, spec.MaxPool):
        if padding is None:
            return PaddedMaxPool(layer)
        return layers.MaxPooling2D(layer.size, layer.stride, padding)
    if padding is None and not layer.count_padding:
        return ImageMean(layer, shape)
    return layers.AveragePooling2D(layer.size, layer.stride, padding or "valid")


def hard_sigmoid(x: Any) -> Any:
    """Hard sigmoid of Keras 2; Keras 3's function of this name is x / 6 + 0.5."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


# `Bidirectional` recreates its layers from their configurations, which name a function. Without a registered
# name of its own, this function would be replaced by Keras's.
saving.register_keras_serializable(package="polybench")(hard_sigmoid)


def lstm_options(variants: Collection[str]) -> dict[str, Any]:
    """Options of `lstm` for these variants of an engine."""
    return {name: value for variant in variants for name, value in _OPTIONS.get(variant, {}).items()}


def lstm(layer: spec.LSTM, name: str, extra_options: Mapping[str, Any]) -> Any:
    """Build the layer, with extra options of Keras. Its gates are in the canonical order.

    On a GPU, `keras.layers.LSTM` uses cuDNN's fused kernel if that computes the same: the recurrent activation is
    "sigmoid" and the loop is not unrolled (`cudnn_ok`, keras/src/backend/tensorflow/rnn.py). On the CPU, Keras on
    TensorFlow always uses a loop.
    """
    if layer.biases == 2:
        raise unsupported_layer("Keras", layer, "biases = 2")
    activation = hard_sigmoid if layer.recurrent_activation == "hard_sigmoid" else "sigmoid"
    options = {"return_sequences": layer.sequence, "recurrent_activation": activation, **extra_options}
    if not layer.bidirectional:
        return layers.LSTM(layer.units, name=name, **options)
    # An inner layer needs a name of its own.
    both = layers.Bidirectional(layers.LSTM(layer.units, name=f"{name}_cell", **options), name=name)
    if options.get("use_cudnn") is False:
        # Keras recreates both layers, first without this option, then assumes that XLA cannot compile them.
        both.forward_layer.supports_jit = both.backward_layer.supports_jit = both.supports_jit = True
    return both


def lstm_variable(layer: Any, tensor: str) -> Any:
    """Return the variable of a layer from `lstm` for a canonical tensor."""
    if isinstance(layer, layers.Bidirectional):
        layer = layer.backward_layer if tensor.startswith(REVERSE) else layer.forward_layer
    return getattr(layer.cell, _LSTM_ATTRIBUTES[tensor.removeprefix(REVERSE)])
