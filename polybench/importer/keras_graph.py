"""Keras: the layers of a functional or sequential model. ADD A LAYER: a function, and its row in LAYERS.

A Keras model is its configuration: the layers, their arguments, and which output is whose input. A row has the
arguments that its function reads; `keras_arguments` refuses the others.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import activations
from keras import layers as kl
from keras.src.ops.nn import Softmax
from keras.src.ops.numpy import Add

from polybench.engines.shared.keras_emitter import layer_program
from polybench.engines.shared.program import import_program
from polybench.errors import BadInput, PolybenchError
from polybench.importer.errors import describe
from polybench.importer.graph import (
    Names,
    Node,
    Slot,
    Source,
    Translation,
    build,
    expect_square,
    pad,
    several_outputs,
    split_padding,
)
from polybench.importer.keras_arguments import check_arguments, check_call, check_losses, check_methods, show
from polybench.networks import layers as spec
from polybench.networks.layers import Shape
from polybench.networks.model import Model
from polybench.networks.padding import NO_PADDING, Sides, same_in_tensorflow

_ACTIVATIONS: dict[Any, tuple[spec.Layer, ...]] = {
    activations.linear: (),
    activations.relu: (spec.ReLU(),),
    activations.relu6: (spec.ReLU6(),),
    activations.gelu: (spec.GELU(),),
    activations.silu: (spec.SiLU(),),
}


_OF_WEIGHTS = {"trainable": True, "regularizer": None, "constraint": None}
"""What the variables of weights have; a user can change them after the layer was built."""


class KerasTranslation(NamedTuple):
    """A translation, and the user's Keras layers by the names of the network's layers."""

    translation: Translation
    layers: dict[str, Any]


def translate(model: Any) -> KerasTranslation:
    """Translate a `keras.Model` with one input; BadInput has the layer that polybench lacks, by its class and name."""
    if problem := _form_problem(model):
        raise BadInput(f"{model.name}: {problem}")
    check_methods(Source(type(model).__name__, model.name), model)
    reader = _Reader(model)
    output = reader.read(model.outputs[0])
    if reader.softmax is not None and reader.probabilities is not output:
        raise reader.softmax.error("a softmax before the end: expected it last, over the classes")
    probabilities = reader.probabilities is not None
    if model.compiled:
        optimizer = type(model.optimizer).__name__
        reader.notes[f"the optimizer of compile, {optimizer}, is not imported: set it in the network file"] = None
    built = build(output, reader.start, model.name, reader.notes, returns_probabilities=probabilities)
    built = _with_slots(built, reader.layers)
    built.check_complete({variable.path: math.prod(variable.shape) for variable in model.trainable_variables})
    _check_inputs(built.model, reader.inputs)
    check_losses(model, from_logits=not probabilities)
    return KerasTranslation(built, reader.layers)


def _form_problem(model: Any) -> str:
    """Return why a model is not a graph from one input to one output; empty if it is."""
    if not model.built or not getattr(model, "inputs", None):
        return "expected a functional or sequential Keras model"
    inputs, outputs = ([one._keras_history.operation.name for one in some] for some in (model.inputs, model.outputs))
    if len(inputs) != 1:
        return f"{len(inputs)} inputs, {', '.join(inputs)}: expected one"
    return several_outputs(outputs) if len(outputs) != 1 else ""


def _check_inputs(network: Model, inputs: Iterable[Any]) -> None:
    """Raise BadInput if Keras rounds the input of the model, or of a model in it, to another type."""
    kinds = ("float32", "float64", *(("int32", "int64") if network.vocabulary_size is not None else ()))
    for tensor in inputs:
        layer = tensor._keras_history.operation
        source = Source("InputLayer", f"layer {layer.name}")
        if tensor.dtype not in kinds:
            raise source.error(f"dtype={tensor.dtype}: expected {' or '.join(kinds)}")
        check_arguments(source, layer, ("batch_shape", "dtype"))


def _with_slots(built: Translation, layers: dict[str, Any]) -> Translation:
    """Add the place of each canonical tensor in Keras's variables, whose axes have another order."""
    network = built.model
    shapes, weights = network.tensor_shapes(), network.weight_shapes()
    slots = {}
    for name, (variable, view) in _variables(network, layers).items():
        for attribute, expected in _OF_WEIGHTS.items() if name in weights else ():
            if (found := getattr(variable, attribute)) is not expected:
                raise BadInput(f"{variable.path}: {attribute}={show(found)}: expected {expected}")
        positions = np.arange(math.prod(variable.shape)).reshape(variable.shape)
        slots[name] = Slot(variable.path, np.ascontiguousarray(view(positions)).reshape(shapes[name]))
    if len({slot.variable for slot in slots.values()}) < len(slots):
        raise BadInput(f"{network.name}: two layers have the same name: expected unique names")
    return built._replace(slots=slots)


def _variables(network: Model, layers: dict[str, Any]) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Return the variable of each canonical tensor, with its view, as the program of this network does."""
    program = import_program(layer_program(network.layers, network.input_shape, "float32"), None)
    found: dict[str, tuple[Any, Callable[[Any], Any]]] = {}
    for name, layer in layers.items():
        views = program.VIEWS.get(type(layer), {})
        variables = sorted(layer.weights, key=lambda variable: variable.name == "bias")
        for (tensor, view), variable in zip(views.items(), variables, strict=False):  # a bias may be missing
            found[f"{name}.{tensor}"] = variable, view
    for name, size in getattr(program, "FLATTENED", {}).items():
        found[name] = found[name][0], partial(program.channels_first, *size)
    return found


class _Reader:
    """Reads the graph of a model from its output to its input."""

    def __init__(self, model: Any) -> None:
        self.start = Node(None, (), _canonical(model.inputs[0].shape), Source("InputLayer", model.name))
        self.names, self.layers = Names(), dict[str, Any]()
        self.notes: dict[str, None] = {}
        self.softmax: Source | None = None
        self.probabilities: Node | None = None
        self.inputs = list(model.inputs)
        """The symbolic inputs of the model, and of the models in it."""
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
                    self._made[id(tensor)] = self._apply(operation, number, [self._made[id(one)] for one in inputs])
            else:
                pending += missing[::-1]
        return self._made[id(tensor)]

    def _inputs(self, operation: Any, number: int) -> Sequence[Any]:
        """Return the input of an operation; that of a model in the model is its own output."""
        inputs: list[Any] = operation._inbound_nodes[number].input_tensors
        if isinstance(operation, keras.Model):
            if problem := _form_problem(operation):
                raise BadInput(f"{operation.name}: a model in the model: {problem}")
            if id(inputs[0]) in self._made:
                self._made[id(operation.inputs[0])] = self._made[id(inputs[0])]
                return list(operation.outputs)
        return inputs

    def _apply(self, operation: Any, number: int, nodes: Sequence[Node]) -> Node:
        kind = type(operation)
        self.source = Source(kind.__name__, f"layer {operation.name}", operation.name)
        if id(operation) in self._used:
            raise self.source.error("the model calls it twice: expected weights for each call")
        self._used.add(id(operation))
        try:
            return self._translate(operation, operation._inbound_nodes[number], nodes)
        except PolybenchError:
            raise
        except Exception as error:
            raise self.source.error(describe(error)) from error

    def _translate(self, operation: Any, call: Any, nodes: Sequence[Node]) -> Node:
        check_methods(self.source, operation)
        if isinstance(operation, keras.Model):
            check_call(self.source, operation, call)
            self.inputs += operation.inputs
            return nodes[0]
        if (row := LAYERS.get(type(operation))) is None:
            whose = "" if type(operation).__module__.startswith("keras.") else "a class of your own: "
            raise self.source.error(
                f"{whose}no layer computes this operation: docs/networks.md lists the layers that exist"
            )
        check_call(self.source, operation, call)
        check_arguments(self.source, operation, row.arguments)
        return row.function(self, operation, *nodes)

    def layer(self, record: spec.Layer, x: Node, keras_layer: Any = None) -> Node:
        """Add a layer after `x`; one with tensors gets a name, and is found under it."""
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
        if activation is activations.softmax:
            self.softmax = self.source
            self.notes["the model ends in a softmax; the network ends in its logits: the softmax is in the loss"] = None
            self.probabilities = x
            return x
        if not inspect.isfunction(activation) or activation not in _ACTIVATIONS:
            names = ", ".join(function.__name__ for function in _ACTIVATIONS)
            raise self.source.error(f"activation={show(activation)}: expected Keras's {names}, or softmax at the end")
        for record in _ACTIVATIONS[activation]:
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
    if expect_square(source, "dilation_rate", layer.dilation_rate) != 1:
        raise source.error(f"dilation_rate={layer.dilation_rate}: expected 1")
    kernel = expect_square(source, "kernel_size", layer.kernel_size)
    stride = expect_square(source, "strides", layer.strides)
    own = same_in_tensorflow(x.shape, kernel, stride) if layer.padding == "same" else NO_PADDING
    x, before = split_padding(x, 0)
    pads = own.plus(before).padding
    if isinstance(layer, kl.DepthwiseConv2D):
        outputs, groups = x.shape[0] * layer.depth_multiplier, x.shape[0]
    else:
        outputs, groups = layer.filters, layer.groups
    record = spec.Conv(reader.name(), x.shape[0], outputs, kernel, stride, pads, layer.use_bias, groups)
    return reader.activate(reader.layer(record, x, layer), layer.activation)


def _zero_padding(reader: _Reader, layer: Any, x: Node) -> Node:
    return pad(x, Sides(*layer.padding[0], *layer.padding[1]), 0, reader.source)


def _dense(reader: _Reader, layer: Any, x: Node) -> Node:
    record = spec.Dense(reader.name(), x.shape[-1], layer.units, layer.use_bias)
    return reader.activate(reader.layer(record, x, layer), layer.activation)


def _activation(reader: _Reader, layer: Any, x: Node) -> Node:
    return reader.activate(x, layer.activation)


def _softmax(reader: _Reader, layer: Any, x: Node) -> Node:
    return reader.activate(x, keras.activations.softmax)


def _relu(reader: _Reader, layer: Any, x: Node) -> Node:
    if layer.max_value not in (None, 6):
        raise reader.source.error(f"max_value={layer.max_value}: expected None or 6")
    return reader.layer(spec.ReLU() if layer.max_value is None else spec.ReLU6(), x)


def _dropout(reader: _Reader, layer: Any, x: Node) -> Node:
    return reader.layer(spec.Dropout(reader.name(), layer.rate), x, layer) if layer.rate else x


def _batch_norm(reader: _Reader, layer: Any, x: Node) -> Node:
    _expect_last_axis(reader, layer.axis, x)
    record = spec.BatchNorm(reader.name(), x.shape[0], layer.epsilon, _one_minus(layer.momentum))
    reader.notes["Keras's running variance divides by n, PyTorch's and polybench's by n - 1; the proof uses n"] = None
    return reader.layer(record, x, layer)


def _expect_last_axis(reader: _Reader, axis: Any, x: Node) -> None:
    if keras.tree.flatten(axis) not in ([-1], [len(x.shape)]):
        raise reader.source.error(f"axis={axis}: expected the last axis")


def _one_minus(momentum: float) -> float:
    """Return the weight of the new value without the rounding error of the difference: 0.01 of 0.99."""
    return round(1 - momentum, 12)


def _layer_norm(reader: _Reader, layer: Any, x: Node) -> Node:
    _expect_last_axis(reader, layer.axis, x)
    return reader.layer(spec.LayerNorm(reader.name(), x.shape[-1], layer.epsilon, layer.center), x, layer)


def _group_norm(reader: _Reader, layer: Any, x: Node) -> Node:
    _expect_last_axis(reader, layer.axis, x)
    return reader.layer(spec.GroupNorm(reader.name(), x.shape[0], layer.groups, layer.epsilon), x, layer)


def _pool(kind: Any) -> Callable[..., Node]:
    def add(reader: _Reader, layer: Any, x: Node) -> Node:
        source = reader.source
        size = expect_square(source, "pool_size", layer.pool_size)
        stride = expect_square(source, "strides", layer.strides)
        own = same_in_tensorflow(x.shape, size, stride) if layer.padding == "same" else NO_PADDING
        x, before = split_padding(x, -math.inf if kind is spec.MaxPool else 0)
        pads = own.plus(before).padding
        if kind is spec.MaxPool:
            return reader.layer(spec.MaxPool(size, stride, pads), x)
        if any(own) and any(before):
            raise source.error('padding "same" after ZeroPadding2D: expected one of them')
        return reader.layer(spec.AveragePool(size, stride, pads, any(before)), x)

    return add


def _global_pool(record: spec.Layer) -> Callable[..., Node]:
    return lambda reader, _, x: reader.layer(record, x)


def _flatten(reader: _Reader, layer: Any, x: Node) -> Node:
    return x if len(x.shape) == 1 else reader.layer(spec.Flatten(), x)


def _reshape(reader: _Reader, layer: Any, x: Node) -> Node:
    """Pixels to a sequence, after a convolution that computes patches."""
    conv: Any = x.layer
    shape = tuple(layer.target_shape)
    is_patches = isinstance(conv, spec.Conv) and conv.kernel == conv.stride and not any(conv.pads) and conv.groups == 1
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
    if x.inputs:
        raise reader.source.error("expected the input's tokens")
    return reader.layer(spec.Embedding(reader.name(), layer.input_dim, layer.output_dim), x, layer)


def _lstm(reader: _Reader, layer: Any, x: Node) -> Node:
    record = spec.LSTM(reader.name(), x.shape[-1], layer.units, False, layer.return_sequences)
    return reader.layer(record, x, layer)


def _bidirectional(reader: _Reader, layer: Any, x: Node) -> Node:
    one, other = layer.forward_layer, layer.backward_layer
    if type(one) is not kl.LSTM or type(other) is not kl.LSTM or one.units != other.units:
        raise reader.source.error("expected two LSTMs of equal size")
    for direction in (one, other):
        check_methods(reader.source, direction)
        check_arguments(reader.source, direction, (*LAYERS[kl.LSTM].arguments, "go_backwards"))
    record = spec.LSTM(reader.name(), x.shape[-1], one.units, True, one.return_sequences)
    return reader.layer(record, x, layer)


def _attention(reader: _Reader, layer: Any, *nodes: Node) -> Node:
    x, features = nodes[0], nodes[0].shape[-1]
    if len(set(nodes)) != 1 or layer.key_dim * layer.num_heads != features or layer.attention_axes != (1,):
        raise reader.source.error("expected self-attention over time, whose heads have all features together")
    if layer.value_dim != layer.key_dim:
        raise reader.source.error(f"value_dim={layer.value_dim}: expected key_dim, {layer.key_dim}")
    return reader.layer(spec.Attention(reader.name(), features, layer.num_heads, False, layer._use_bias), x, layer)


class Row(NamedTuple):
    """How to translate a class of Keras: the function, and the arguments of the layer that it reads."""

    function: Callable[..., Node]
    arguments: Sequence[str] = ()


_WINDOW = ("kernel_size", "strides", "padding", "dilation_rate")

LAYERS: dict[type[Any], Row] = {
    kl.Conv2D: Row(_conv, ("filters", *_WINDOW, "groups", "activation", "use_bias")),
    kl.DepthwiseConv2D: Row(_conv, ("depth_multiplier", *_WINDOW, "activation", "use_bias")),
    kl.ZeroPadding2D: Row(_zero_padding, ("padding",)),
    kl.Dense: Row(_dense, ("units", "activation", "use_bias")),
    kl.Activation: Row(_activation, ("activation",)),
    kl.Softmax: Row(_softmax),
    Softmax: Row(_softmax),
    kl.ReLU: Row(_relu, ("max_value",)),
    kl.Dropout: Row(_dropout, ("rate",)),
    kl.BatchNormalization: Row(_batch_norm, ("axis", "momentum", "epsilon")),
    kl.LayerNormalization: Row(_layer_norm, ("axis", "epsilon", "center")),
    kl.GroupNormalization: Row(_group_norm, ("axis", "epsilon", "groups")),
    kl.MaxPooling2D: Row(_pool(spec.MaxPool), ("pool_size", "strides", "padding")),
    kl.AveragePooling2D: Row(_pool(spec.AveragePool), ("pool_size", "strides", "padding")),
    kl.GlobalAveragePooling2D: Row(_global_pool(spec.GlobalAveragePool())),
    kl.GlobalAveragePooling1D: Row(_global_pool(spec.MeanOverTime())),
    kl.Flatten: Row(_flatten),
    kl.Reshape: Row(_reshape, ("target_shape",)),
    kl.Add: Row(_add),
    Add: Row(_add),
    kl.Embedding: Row(_embedding, ("input_dim", "output_dim")),
    kl.LSTM: Row(_lstm, ("units", "return_sequences")),
    kl.Bidirectional: Row(_bidirectional, ("layer", "backward_layer")),
    kl.MultiHeadAttention: Row(_attention, ("num_heads", "key_dim", "value_dim", "attention_axes", "use_bias")),
}
"""The layer of each class of Keras, and of the operations that functions of `keras.ops` are."""
