"""Layers of a network that are timed separately, also inside residual blocks, each with its ReLU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from os.path import commonpath
from typing import NamedTuple

import msgspec

from polybench.networks.layers import Layer, Named, Operation, ReLU, Residual, Shape, state_shapes, walk, weight_shapes
from polybench.networks.model import Model

_MATRIX_OPERATIONS: tuple[Operation, ...] = ("forward", "input gradient", "weight gradient")
"""Operations of these layers that are matrix products."""


class Gradient(NamedTuple):
    """A gradient that is timed separately, and the tensors that it is taken with respect to."""

    operation: Operation
    wrt_input: bool
    wrt_weights: bool

    @property
    def has_input_gradient(self) -> bool:
        """True if computing the weight gradient includes the input gradient; its time is then subtracted."""
        return self.operation == "weight gradient" and self.wrt_input


class TimedLayer(msgspec.Struct, frozen=True):
    """A layer, followed by its ReLU if it has one.

    The sum at the end of a residual block is a timed layer of its own: a `Residual` with two empty branches,
    x + x, whose gradient adds the gradients of the branches.
    """

    name: str
    block: str
    """Name of the outermost residual block that contains it, or its own name outside of blocks."""
    layers: tuple[Layer, ...]
    input_shape: Shape
    """Shape for one image."""
    needs_input_gradient: bool
    """False up to and including the first layer with weights, since images need no gradient."""

    @property
    def layer(self) -> Layer:
        """The layer without its ReLU."""
        return self.layers[0]

    @property
    def has_relu(self) -> bool:
        """True if a ReLU follows the layer."""
        return len(self.layers) > 1

    @property
    def is_relu(self) -> bool:
        """True if it is nothing but a ReLU."""
        return isinstance(self.layer, ReLU)

    def output_shape(self) -> Shape:
        """Return the shape for one image."""
        return self.layer.output_shape(self.input_shape)

    def weight_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the trained tensors."""
        return weight_shapes(self.layers)

    def tensor_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the trained tensors, then of the state."""
        return weight_shapes(self.layers) | state_shapes(self.layers)

    def gradients(self) -> list[Gradient]:
        """Return the gradients of the backward pass, without the ReLU's.

        Only convolutions and dense layers have two independent gradients. Norms compute both from the same
        sums, and they count as the input gradient. Both gradients of an LSTM need backpropagation through time,
        and those of attention through its scores. It counts as the input gradient; the weight gradient is only
        the additional time.
        """
        has_weights = bool(self.weight_shapes())
        if self.layer.macs(self.input_shape):
            layer, shape = self.layer, self.input_shape
            includes_input_gradient = bool(layer.recurrent_macs(shape) or layer.score_macs(shape))
            gradients = [
                Gradient("input gradient", True, False),
                Gradient("weight gradient", includes_input_gradient, True),
            ]
        else:
            gradients = [Gradient("input gradient", True, has_weights)]
        if self.needs_input_gradient:
            return gradients
        return [Gradient("weight gradient", False, True)] if has_weights else []

    def flops(self, operation: Operation, batch_size: int) -> int | None:
        """Return the FLOPs of a layer with matrix products: two per MAC of the direct computation.

        Each gradient has as many as the forward pass, except that attention's scores and values have four products
        in the input gradient, and none in the weight gradient. If an LSTM has no input gradient, its weight gradient
        includes backpropagation through time.
        """
        macs_per_item = self.layer.macs(self.input_shape)
        if not macs_per_item or operation not in _MATRIX_OPERATIONS:
            return None
        if operation != "forward":
            scores = self.layer.score_macs(self.input_shape)
            macs_per_item += scores if operation == "input gradient" else -scores
        if operation == "weight gradient" and not self.needs_input_gradient:
            macs_per_item += self.layer.recurrent_macs(self.input_shape)
        return 2 * macs_per_item * batch_size

    def min_bytes_moved(self, operation: Operation, batch_size: int, value_bytes: int = 4) -> int | None:
        """Return the bytes that are read and written if each value moves once; None without FLOPs.

        The forward pass and each gradient move input, output and weights, or the gradients of these. A value has
        `value_bytes`: 4 in float32, 2 in bf16.
        """
        if self.flops(operation, batch_size) is None:
            return None
        values_per_item = math.prod(self.input_shape) + math.prod(self.output_shape())
        return value_bytes * (values_per_item * batch_size + sum(map(math.prod, self.weight_shapes().values())))


def split_layers(model: Model) -> list[TimedLayer]:
    """Return the timed layers in the order of `model.activations()`; a block has its body, shortcut, sum."""
    return list(_Splitter(model.layers).split(model.layers, model.input_shape))


class _Splitter:
    def __init__(self, layers: Sequence[Layer]) -> None:
        self._used_names = {layer.name for layer in walk(layers) if isinstance(layer, Named)}
        self._counters: Counter[str] = Counter()
        self._has_weights_before = False

    def split(self, layers: Sequence[Layer], shape: Shape, block: str | None = None) -> Iterator[TimedLayer]:
        """Yield the timed layers of `layers` for images of `shape`, inside the residual block `block`."""
        for layer, relu in _with_relu(layers):
            name = self._name(layer) + (" + relu" if relu else "")
            outermost = block or name
            output_shape = layer.output_shape(shape)
            if isinstance(layer, Residual):
                yield from self.split(layer.body, shape, outermost)
                yield from self.split(layer.shortcut, shape, outermost)
                yield TimedLayer(
                    f"{name} (sum)", outermost, (Residual(()), *relu), output_shape, self._has_weights_before
                )
            else:
                yield TimedLayer(name, outermost, (_untied(layer), *relu), shape, self._has_weights_before)
            self._has_weights_before = self._has_weights_before or bool(weight_shapes([layer]))
            shape = output_shape

    def _name(self, layer: Layer) -> str:
        """Return a unique name: the layer's own, or the common prefix of a block's layers, or its kind and a number,
        after the prefix if another block has the prefix alone.
        """
        if isinstance(layer, Named):
            return layer.name
        nested_names = [one.name.rpartition(".")[0] for one in walk([layer]) if isinstance(one, Named)]
        prefix = commonpath(name.replace(".", "/") for name in nested_names).replace("/", ".") if nested_names else ""
        kind = ".".join(filter(None, (prefix, str(layer.__struct_config__.tag))))
        self._counters[kind] += 1
        name = prefix
        while not name or name in self._used_names:
            name = f"{kind}{self._counters[kind]}"
            self._counters[kind] += name in self._used_names
        self._used_names.add(name)
        return name


def _untied(layer: Layer) -> Layer:
    """Return a layer that has the weight that it shares, under the same name."""
    tied = getattr(layer, "tied", None)
    return layer if tied is None else msgspec.structs.replace(layer, name=tied, tied=None)


def _with_relu(layers: Sequence[Layer]) -> Iterator[tuple[Layer, tuple[Layer, ...]]]:
    """Yield each layer with the ReLU that is timed together with it."""
    index = 0
    while index < len(layers):
        layer, after = layers[index], tuple(layers[index + 1 : index + 2])
        relu = after if layer.fuses_relu and after and isinstance(after[0], ReLU) else ()
        yield layer, relu
        index += 1 + len(relu)
