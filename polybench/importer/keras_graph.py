"""Keras: the layers of a functional or sequential model. ADD A LAYER: a function, and its row in LAYERS.

A Keras model is its configuration: the layers, their settings, and which output is whose input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from polybench.engines.shared.keras_layers import Network
from polybench.engines.shared.keras_layout import flattened_shapes, from_keras, tables
from polybench.errors import BadInput
from polybench.importer.graph import Names, Node, Slot, Source, Translation, build, expect_square
from polybench.networks import layers as spec
from polybench.networks.layers import Shape

_ACTIVATIONS: dict[str, tuple[spec.Layer, ...]] = {
    "linear": (),
    "relu": (spec.ReLU(),),
    "relu6": (spec.ReLU6(),),
    "gelu": (spec.GELU(),),
    "silu": (spec.SiLU(),),
}


class KerasTranslation(NamedTuple):
    """A translation, and the user's Keras layers by the names of the network's layers."""

    translation: Translation
    layers: dict[str, Any]


def translate(model: Any) -> KerasTranslation:
    """Translate a `keras.Model` with one input; BadInput has the layer that polybench lacks, by its class and name."""
    if not model.built or len(getattr(model, "inputs", None) or ()) != 1 or len(model.outputs) != 1:
        raise BadInput(f"{model.name}: expected a functional or sequential Keras model with one input and one output")
    reader = _Reader(model)
    output = reader.read(model.outputs[0])
    if reader.softmax is not None and reader.probabilities is not output:
        raise reader.softmax.error("a softmax before the end: expected it last, over the classes")
    probabilities = reader.probabilities is not None
    built = build(output, reader.start, model.name, reader.notes, returns_probabilities=probabilities)
    return KerasTranslation(_with_slots(built, reader.layers), reader.layers)


def _with_slots(built: Translation, layers: dict[str, Any]) -> Translation:
    """Add the place of each canonical tensor in Keras's variables, whose axes have another order."""
    network = built.model
    shapes, flattened, are_tables = network.tensor_shapes(), flattened_shapes(network), tables(network.layers)
    slots = {}
    for name, variable in Network(None, layers).variables(shapes).items():
        positions = np.arange(math.prod(variable.shape)).reshape(variable.shape)
        indices = from_keras(positions, shapes[name], flattened.get(name), is_table=name in are_tables)
        slots[name] = Slot(variable.path, indices.reshape(shapes[name]))
    if len({slot.variable for slot in slots.values()}) < len(slots):
        raise BadInput(f"{network.name}: two layers have the same name: expected unique names")
    return built._replace(slots=slots)


class _Reader:
    """Reads the graph of a model from its output to its input."""

    def __init__(self, model: Any) -> None:
        self.start = Node(None, (), _canonical(model.inputs[0].shape), Source("InputLayer", model.name))
        self.names, self.layers = Names(), dict[str, Any]()
        self.notes: dict[str, None] = {}
        self.softmax: Source | None = None
        self.probabilities: Node | None = None
        self.padding: dict[Node, int] = {}
        """Zeros on each side that the next convolution adds."""
        self._made: dict[int, Node] = {id(model.inputs[0]): self.start}
        self._used: set[int] = set()
        self.source = self.start.source

    def read(self, tensor: Any) -> Node:
        """Return the node of a symbolic tensor, after those that it depends on."""
        pending = [tensor]
        while pending:
            tensor = pending[-1]
            operation, number, _ = tensor._keras_history
            inputs = self._inputs(operation, number)
            missing = [one for one in inputs if id(one) not in self._made]
            if id(tensor) in self._made or not missing:
                pending.pop()
                if id(tensor) not in self._made:
                    self._made[id(tensor)] = self._apply(operation, inputs)
            else:
                pending += missing[::-1]
        return self._made[id(tensor)]

    def _inputs(self, operation: Any, number: int) -> Sequence[Any]:
        """Return the input of an operation; that of a model in the model is its own output."""
        inputs: list[Any] = operation._inbound_nodes[number].input_tensors
        if hasattr(operation, "outputs") and hasattr(operation, "layers"):
            if len(inputs) != 1 or len(operation.outputs) != 1:
                raise BadInput(f"{operation.name}: a model in the model: expected one input and one output")
            if id(inputs[0]) in self._made:
                self._made[id(operation.inputs[0])] = self._made[id(inputs[0])]
                return list(operation.outputs)
        return inputs

    def _apply(self, operation: Any, inputs: Sequence[Any]) -> Node:
        kind = type(operation).__name__
        nodes = [self._made[id(one)] for one in inputs]
        if hasattr(operation, "outputs") and hasattr(operation, "layers"):
            return nodes[0]
        self.source = Source(kind, f"layer {operation.name}", operation.name)
        if id(operation) in self._used:
            raise self.source.error("the model calls it twice: expected weights for each call")
        self._used.add(id(operation))
        if (function := LAYERS.get(kind)) is None:
            raise self.source.error("no layer computes this operation: docs/networks.md lists the layers that exist")
        if not getattr(operation, "trainable", True) and operation.weights:
            raise self.source.error("trainable is False: expected True, because polybench trains all weights")
        return function(self, operation, *nodes)

    def layer(self, record: spec.Layer, x: Node, keras_layer: Any = None) -> Node:
        """Add a layer after `x`; one with tensors gets a name, and is found under it."""
        if x in self.padding:
            raise self.source.error("ZeroPadding2D is only supported right before a convolution")
        if isinstance(record, spec.Named):
            self.layers[record.name] = keras_layer
        try:
            shape = record.output_shape(x.shape)
        except ValueError as error:
            raise self.source.error(str(error)) from None
        return Node(record, (x,), shape, self.source)

    def name(self) -> str:
        """Return a unique name for the current layer."""
        return self.names.unique(self.source.name, "layer")

    def activate(self, x: Node, activation: Any) -> Node:
        """Add the layers of an activation function."""
        name = getattr(activation, "__name__", str(activation))
        if name == "softmax":
            self.softmax = self.source
            self.notes["the model ends in a softmax; the network ends in its logits: the softmax is in the loss"] = None
            self.probabilities = x
            return x
        if name not in _ACTIVATIONS:
            raise self.source.error(f"activation {name}: expected {', '.join(_ACTIVATIONS)}, or softmax at the end")
        for record in _ACTIVATIONS[name]:
            x = self.layer(record, x)
        return x


def _canonical(shape: Sequence[Any]) -> Shape:
    """Return the canonical shape of one input of a Keras shape with the batch."""
    *spatial, last = shape[1:]
    if None in shape[1:]:
        raise BadInput(f"the input has shape {tuple(shape[1:])}: expected fixed numbers")
    return (last, *spatial) if len(spatial) == 2 else tuple(shape[1:])


def _conv(reader: _Reader, layer: Any, x: Node) -> Node:
    source = reader.source
    if layer.data_format != "channels_last" or expect_square(source, "dilation_rate", layer.dilation_rate) != 1:
        raise source.error("expected data_format channels_last, and dilation_rate 1")
    kernel = expect_square(source, "kernel_size", layer.kernel_size)
    stride = expect_square(source, "strides", layer.strides)
    zeros = reader.padding.get(x, 0)
    x = x.inputs[0] if x in reader.padding else x
    if layer.padding == "same":
        zeros += _same_padding(source, x.shape, kernel, stride)
    if type(layer).__name__ == "DepthwiseConv2D":
        outputs, groups = x.shape[0] * layer.depth_multiplier, x.shape[0]
    else:
        outputs, groups = layer.filters, layer.groups
    record = spec.Conv(reader.name(), x.shape[0], outputs, kernel, stride, zeros, layer.use_bias, groups)
    return reader.activate(reader.layer(record, x, layer), layer.activation)


def _same_padding(source: Source, shape: Shape, kernel: int, stride: int) -> int:
    """Return the zeros on each side; BadInput if TensorFlow's "same" adds more at the end than at the start."""
    totals = {max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in shape[1:]}
    total = totals.pop()
    if totals or total % 2:
        raise source.error(
            f'padding "same" of {shape[1]} x {shape[2]} with kernel {kernel} and stride {stride} adds more zeros at the'
            " end than at the start: use ZeroPadding2D with equal sides, or images of another size"
        )
    return total // 2


def _zero_padding(reader: _Reader, layer: Any, x: Node) -> Node:
    sides = {side for axis in layer.padding for side in axis}
    if len(sides) != 1 or x in reader.padding:
        raise reader.source.error(f"padding {layer.padding}: expected the same on all sides")
    node = Node(
        None, (x,), x.shape, reader.source, problem="ZeroPadding2D is only supported right before a convolution"
    )
    reader.padding[node] = sides.pop()
    return node


def _dense(reader: _Reader, layer: Any, x: Node) -> Node:
    record = spec.Dense(reader.name(), x.shape[-1], layer.units, layer.use_bias)
    return reader.activate(reader.layer(record, x, layer), layer.activation)


def _activation(reader: _Reader, layer: Any, x: Node) -> Node:
    return reader.activate(x, layer.activation)


def _softmax(reader: _Reader, layer: Any, x: Node) -> Node:
    return reader.activate(x, keras.activations.softmax)


def _relu(reader: _Reader, layer: Any, x: Node) -> Node:
    if layer.negative_slope or layer.threshold or layer.max_value not in (None, 6):
        raise reader.source.error("expected max_value None or 6, and negative_slope and threshold 0")
    return reader.layer(spec.ReLU() if layer.max_value is None else spec.ReLU6(), x)


def _dropout(reader: _Reader, layer: Any, x: Node) -> Node:
    if layer.noise_shape is not None:
        raise reader.source.error("expected noise_shape None")
    return reader.layer(spec.Dropout(reader.name(), layer.rate), x, layer) if layer.rate else x


def _batch_norm(reader: _Reader, layer: Any, x: Node) -> Node:
    if not layer.center or not layer.scale or layer.axis not in (-1, len(x.shape)):
        raise reader.source.error("expected center=True, scale=True and the last axis")
    record = spec.BatchNorm(reader.name(), x.shape[0], layer.epsilon, _one_minus(layer.momentum))
    reader.notes["Keras's running variance divides by n, PyTorch's and polybench's by n - 1; the proof uses n"] = None
    return reader.layer(record, x, layer)


def _one_minus(momentum: float) -> float:
    """Return the weight of the new value without the rounding error of the difference: 0.01 of 0.99."""
    return round(1 - momentum, 12)


def _layer_norm(reader: _Reader, layer: Any, x: Node) -> Node:
    axis = layer.axis[0] if isinstance(layer.axis, list | tuple) and len(layer.axis) == 1 else layer.axis
    if not layer.scale or axis not in (-1, len(x.shape)):
        raise reader.source.error("expected scale=True and the last axis")
    return reader.layer(spec.LayerNorm(reader.name(), x.shape[-1], layer.epsilon, layer.center), x, layer)


def _group_norm(reader: _Reader, layer: Any, x: Node) -> Node:
    if not layer.center or not layer.scale or layer.axis not in (-1, len(x.shape)):
        raise reader.source.error("expected center=True, scale=True and the last axis")
    return reader.layer(spec.GroupNorm(reader.name(), x.shape[0], layer.groups, layer.epsilon), x, layer)


def _pool(kind: Any) -> Callable[..., Node]:
    def add(reader: _Reader, layer: Any, x: Node) -> Node:
        source = reader.source
        size = expect_square(source, "pool_size", layer.pool_size)
        stride = expect_square(source, "strides", layer.strides)
        if layer.padding == "same" and any((length - size) % stride for length in x.shape[1:]):
            raise source.error('padding "same": expected "valid"')
        return reader.layer(kind(size, stride), x)

    return add


def _global_pool(record: spec.Layer) -> Callable[..., Node]:
    def add(reader: _Reader, layer: Any, x: Node) -> Node:
        if layer.keepdims:
            raise reader.source.error("expected keepdims=False")
        return reader.layer(record, x)

    return add


def _flatten(reader: _Reader, layer: Any, x: Node) -> Node:
    return x if len(x.shape) == 1 else reader.layer(spec.Flatten(), x)


def _reshape(reader: _Reader, layer: Any, x: Node) -> Node:
    """Pixels to a sequence, after a convolution that computes patches."""
    conv: Any = x.layer
    shape = tuple(layer.target_shape)
    is_patches = isinstance(conv, spec.Conv) and conv.kernel == conv.stride and conv.pad == 0 and conv.groups == 1
    time = math.prod(x.shape[1:])
    if is_patches and shape in ((-1, conv.outputs), (time, conv.outputs)):
        record = spec.Patches(conv.name, conv.inputs, conv.outputs, conv.kernel, conv.bias)
        return Node(record, x.inputs, (time, conv.outputs), x.source)
    raise reader.source.error(f"target_shape {shape}: expected patches as a sequence, after a convolution")


def _add(reader: _Reader, layer: Any, *nodes: Node) -> Node:
    total = nodes[0]
    for node in nodes[1:]:
        if node.shape != total.shape:
            raise reader.source.error(f"adds shapes {total.shape} and {node.shape}: expected equal shapes")
        total = Node(None, (total, node), node.shape, reader.source)
    return total


def _embedding(reader: _Reader, layer: Any, x: Node) -> Node:
    if layer.mask_zero or x.inputs:
        raise reader.source.error("expected the input's tokens, and mask_zero=False")
    return reader.layer(spec.Embedding(reader.name(), layer.input_dim, layer.output_dim), x, layer)


def _lstm(reader: _Reader, layer: Any, x: Node) -> Node:
    one, bidirectional = (layer.forward_layer, True) if hasattr(layer, "forward_layer") else (layer, False)
    usual = {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True, "dropout": 0.0}
    usual |= {"recurrent_dropout": 0.0, "go_backwards": False, "stateful": False}
    if type(one).__name__ != "LSTM" or (bidirectional and layer.merge_mode != "concat"):
        raise reader.source.error("expected an LSTM, with merge_mode concat")
    for option, expected in usual.items():
        found = getattr(one, option)
        if getattr(found, "__name__", found) != expected:
            raise reader.source.error(f"{option} {found}: expected {expected}")
    record = spec.LSTM(reader.name(), x.shape[-1], one.units, bidirectional, one.return_sequences)
    return reader.layer(record, x, layer)


def _attention(reader: _Reader, layer: Any, *nodes: Node) -> Node:
    x, features = nodes[0], nodes[0].shape[-1]
    if len(set(nodes)) != 1 or layer._dropout or layer.key_dim * layer.num_heads != features or layer._output_shape:
        raise reader.source.error("expected self-attention without dropout, whose heads have all features together")
    if layer.value_dim != layer.key_dim:
        raise reader.source.error("expected value_dim equal to key_dim")
    return reader.layer(spec.Attention(reader.name(), features, layer.num_heads, False, layer._use_bias), x, layer)


LAYERS: dict[str, Callable[..., Node]] = {
    "Conv2D": _conv,
    "DepthwiseConv2D": _conv,
    "ZeroPadding2D": _zero_padding,
    "Dense": _dense,
    "Activation": _activation,
    "Softmax": _softmax,
    "ReLU": _relu,
    "Dropout": _dropout,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "MaxPooling2D": _pool(spec.MaxPool),
    "AveragePooling2D": _pool(spec.AveragePool),
    "GlobalAveragePooling2D": _global_pool(spec.GlobalAveragePool()),
    "GlobalAveragePooling1D": _global_pool(spec.MeanOverTime()),
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Add": _add,
    "Embedding": _embedding,
    "LSTM": _lstm,
    "Bidirectional": _lstm,
    "MultiHeadAttention": _attention,
}
"""The layer of each class of Keras."""
