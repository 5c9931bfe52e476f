"""Canonical tensors, channels first, as Keras wants them, channels last, and back; needs no Keras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from polybench.core.layer_base import Shape
from polybench.core.layers import BatchNorm, Dense, Dropout, Flatten, Layer, Residual, walk
from polybench.core.model import Model
from polybench.core.sequence_layers import Embedding
from polybench.engines.base import Array
from polybench.engines.support.frameworks import no_such_layer


def flattened_shapes(model: Model) -> dict[str, Shape]:
    """Which features come out of a flatten, so that Keras has them in another order.

    For each such tensor, and each dropout layer with such an input, by name: the (channels, height, width)
    that were flattened. A dense layer reads them, and puts out features that all have in the same order.

    Raises:
        Unavailable: a residual block adds features of both orders.
    """
    return dict(_Orders().through(model.layers, model.input_shape))


class _Orders:
    """Goes through layers; `flattened` is the shape of what a flatten made the features of, at that point."""

    flattened: Shape | None = None

    def through(self, layers: Iterable[Layer], shape: Shape) -> Iterator[tuple[str, Shape]]:
        for layer in layers:
            if isinstance(layer, Residual):
                yield from self._block(layer, shape)
            elif isinstance(layer, Flatten) and len(shape) == 3:
                self.flattened = shape
            elif self.flattened:
                yield from ((name, self.flattened) for name in _names(layer))
                if isinstance(layer, Dense):
                    self.flattened = None
            shape = layer.output_shape(shape)

    def _block(self, block: Residual, shape: Shape) -> Iterator[tuple[str, Shape]]:
        before = self.flattened
        yield from self.through(block.body, shape)
        body, self.flattened = self.flattened, before
        yield from self.through(block.shortcut, shape)
        if self.flattened != body:
            raise no_such_layer("Keras", block, "a body and a shortcut that flatten differently")


def _names(layer: Layer) -> Iterable[str]:
    """What has an entry for each feature of the layer's input."""
    match layer:
        case Dense(name=name):
            return (f"{name}.weight",)
        case BatchNorm(name=name):
            return (f"{name}.{part}" for part in layer.weight_shapes() | layer.state_shapes())
        case Dropout(name=name):
            return (name,)
        case _:
            return ()


def tables(layers: Iterable[Layer]) -> set[str]:
    """The names of those weights that Keras has as they are: an embedding's rows."""
    return {f"{layer.name}.weight" for layer in walk(tuple(layers)) if isinstance(layer, Embedding)}


def to_keras(value: Array, flattened: Shape | None, *, table: bool = False) -> Array:
    """Canonical to Keras: conv (out, in, kh, kw) to (kh, kw, in, out), dense (out, in) to (in, out).

    With `flattened`, the last axis goes from channels first to channels last. A `table` stays as it is.
    """
    if table:
        return np.ascontiguousarray(value)
    if flattened:
        value = _last_axis_to_channels_last(value, flattened)
    return np.ascontiguousarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T)


def from_keras(value: Array, flattened: Shape | None, *, table: bool = False) -> Array:
    """The inverse of `to_keras`."""
    if table:
        return np.ascontiguousarray(value)
    value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
    if flattened:
        channels, height, width = flattened
        value = value.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(value.shape)
    return np.ascontiguousarray(value)


def batch_to_keras(value: Array, flattened: Shape | None = None) -> Array:
    """Images (batch, channels, height, width) to channels last, or (batch, features) as `to_keras` does.

    Sequences, of tokens or features, stay as they are.
    """
    if value.ndim == 4:
        return value.transpose(0, 2, 3, 1)
    return _last_axis_to_channels_last(value, flattened) if flattened else value


def _last_axis_to_channels_last(value: Array, flattened: Shape) -> Array:
    return value.reshape(-1, *flattened).transpose(0, 2, 3, 1).reshape(value.shape)
