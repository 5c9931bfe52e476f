"""Conversion between canonical tensors (channels first) and Keras's (channels last); imports no Keras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np

from polybench.engines.base import Array
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    MaxPool,
    Positions,
    Residual,
    Shape,
    walk,
)
from polybench.networks.model import Model
from polybench.networks.padding import same_in_tensorflow


def flattened_shapes(model: Model) -> dict[str, Shape]:
    """Find tensors indexed by flattened features, which Keras orders differently.

    Return (channels, height, width) before the flatten, by the name of the tensor or of the dropout layer. The first
    dense layer after a flatten restores the common order. Raises EngineUnavailable if a residual block adds features of
    different orders.
    """
    return dict(_AxisOrders().visit(model.layers, model.input_shape))


class _AxisOrders:
    """Visitor of layers that tracks the order of the features.

    `flattened` is the shape before the flatten if the current features are in flattened order.
    """

    flattened: Shape | None = None

    def visit(self, layers: Iterable[Layer], shape: Shape) -> Iterator[tuple[str, Shape]]:
        for layer in layers:
            if isinstance(layer, Residual):
                yield from self._visit_block(layer, shape)
            elif isinstance(layer, Flatten) and len(shape) == 3:
                self.flattened = shape
            elif self.flattened:
                yield from ((name, self.flattened) for name in _tensors_by_feature(layer))
                if isinstance(layer, Dense):
                    self.flattened = None
            shape = layer.output_shape(shape)

    def _visit_block(self, block: Residual, shape: Shape) -> Iterator[tuple[str, Shape]]:
        before = self.flattened
        yield from self.visit(block.body, shape)
        body, self.flattened = self.flattened, before
        yield from self.visit(block.shortcut, shape)
        if self.flattened != body:
            raise unsupported_layer("Keras", block, "a body and a shortcut that flatten differently")


def _tensors_by_feature(layer: Layer) -> Iterable[str]:
    """Names of the layer's tensors that have one entry per input feature."""
    match layer:
        case Dense(name=name):
            return (f"{name}.weight",)
        case BatchNorm(name=name):
            return (f"{name}.{tensor}" for tensor in layer.weight_shapes() | layer.state_shapes())
        case Dropout(name=name):
            return (name,)
        case _:
            return ()


def tables(layers: Iterable[Layer]) -> set[str]:
    """Names of tables of embeddings and positions, which have the same layout in Keras."""
    return {f"{layer.name}.weight" for layer in walk(tuple(layers)) if isinstance(layer, Embedding | Positions)}


def to_keras(value: Array, flattened: Shape | None, *, is_table: bool = False) -> Array:
    """Convert a canonical tensor: conv (out, in, kh, kw) to (kh, kw, in, out), dense (out, in) to (in, out).

    With `flattened`, the last axis changes from channels first to channels last. Tables are unchanged. Keras's
    attention and depthwise convolutions split an axis further, without another order of the values.
    """
    if is_table:
        return np.ascontiguousarray(value)
    if flattened:
        value = _last_axis_to_channels_last(value, flattened)
    return np.ascontiguousarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T)


def from_keras(value: Array, shape: Shape, flattened: Shape | None, *, is_table: bool = False) -> Array:
    """Convert a tensor to the canonical layout and `shape`: the inverse of `to_keras`."""
    if is_table:
        return np.ascontiguousarray(value)
    if len(shape) == 4:
        value = value.reshape(*shape[2:], shape[1], shape[0]).transpose(3, 2, 0, 1)
    else:
        value = value.reshape(shape[::-1]).T
    if flattened:
        channels, height, width = flattened
        value = value.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(value.shape)
    return np.ascontiguousarray(value)


def batch_to_keras(value: Array, flattened: Shape | None = None) -> Array:
    """Convert images (batch, channels, height, width) to channels last, and flattened features as `to_keras`.

    Sequences of tokens or features are unchanged.
    """
    if value.ndim == 4:
        return value.transpose(0, 2, 3, 1)
    return _last_axis_to_channels_last(value, flattened) if flattened else value


def _last_axis_to_channels_last(value: Array, flattened: Shape) -> Array:
    return value.reshape(-1, *flattened).transpose(0, 2, 3, 1).reshape(value.shape)


def keras_padding(layer: Conv | MaxPool | AveragePool, shape: Shape) -> Literal["valid", "same"] | None:
    """Return Keras's padding for inputs of `shape`; None if a layer before it has to pad."""
    if not any(layer.pads):
        return "valid"
    size = layer.kernel if isinstance(layer, Conv) else layer.size
    counts_padding = isinstance(layer, AveragePool) and layer.count_padding  # Keras's own does not
    is_same = layer.pads == same_in_tensorflow(shape, size, layer.stride)
    return "same" if is_same and not counts_padding else None
