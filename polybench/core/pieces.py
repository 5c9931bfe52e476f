"""The pieces of a network that are timed alone: each layer, also inside of residual blocks, with its ReLU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from os.path import commonpath
from typing import NamedTuple

import msgspec

from polybench.core.arithmetic import multiply_adds
from polybench.core.document.layers import Part
from polybench.core.layer_base import Shape
from polybench.core.layers import (
    BatchNorm,
    Conv,
    Dense,
    Layer,
    Named,
    ReLU,
    Residual,
    state_shapes,
    walk,
    weight_shapes,
)
from polybench.core.model import Model
from polybench.core.sequence_layers import LSTM

_ACTIVATED = (Conv, Dense, BatchNorm, Residual)
"""Layers of which a ReLU right after them is a part, as their users write it and engines fuse it."""

_PRODUCTS: tuple[Part, ...] = ("forward", "data gradient", "weight gradient")
"""What of a convolution or dense layer multiplies."""


class Gradient(NamedTuple):
    """A gradient that is timed alone, and with respect to what."""

    part: Part
    data: bool
    weights: bool

    @property
    def contains_data_gradient(self) -> bool:
        """Whether the data's is computed on the way to the weights', and its time has to be taken off."""
        return self.part == "weight gradient" and self.data


class Piece(msgspec.Struct, frozen=True):
    """A layer, and the ReLU after it if it has one.

    The sum at the end of a residual block is a piece as well: a `Residual` with two empty branches, x + x,
    whose gradient adds those of the branches.
    """

    name: str
    block: str
    """The outermost residual block that it is in; its own name outside of them."""
    layers: tuple[Layer, ...]
    input_shape: Shape
    """For one image."""
    wants_data_gradient: bool
    """Not before the first layer with weights: the images need none."""

    @property
    def layer(self) -> Layer:
        """Without the ReLU."""
        return self.layers[0]

    @property
    def activated(self) -> bool:
        """Whether it has a ReLU."""
        return len(self.layers) > 1

    def output_shape(self) -> Shape:
        """For one image."""
        return self.layer.output_shape(self.input_shape)

    def weight_shapes(self) -> dict[str, Shape]:
        """What of it is trained."""
        return weight_shapes(self.layers)

    def tensor_shapes(self) -> dict[str, Shape]:
        """What is trained, then the state."""
        return weight_shapes(self.layers) | state_shapes(self.layers)

    def gradients(self) -> list[Gradient]:
        """What is computed backwards, but for the ReLU's.

        Only convolutions and products have two gradients that do not need each other; those of batch norm
        come out of the same sums, and count as the data's. Both of an LSTM need the way back through time:
        it counts as the data's, and what the weights' take beyond it is theirs.
        """
        weights = bool(self.weight_shapes())
        if isinstance(self.layer, Conv | Dense | LSTM):
            on_the_way = isinstance(self.layer, LSTM)
            found = [Gradient("data gradient", True, False), Gradient("weight gradient", on_the_way, True)]
        else:
            found = [Gradient("data gradient", True, weights)]
        if self.wants_data_gradient:
            return found
        return [Gradient("weight gradient", False, True)] if weights else []

    def flop(self, part: Part, batch_size: int) -> int | None:
        """Of convolutions, products and LSTMs: two for each multiply-add of the direct computation.

        Each gradient has as many as the forward pass. Where an LSTM has no data gradient, its weights' has
        the way back through time, too.
        """
        if not isinstance(self.layer, Conv | Dense | LSTM) or part not in _PRODUCTS:
            return None
        products = multiply_adds(self.layer, self.input_shape, self.output_shape())
        if isinstance(self.layer, LSTM) and part == "weight gradient" and not self.wants_data_gradient:
            products += self.layer.multiply_adds(self.input_shape[0])[1]
        return 2 * products * batch_size

    def compulsory_bytes(self, part: Part, batch_size: int) -> int | None:
        """Of what has FLOP, in float32: what is read and written if each value moves once.

        Forward and for either gradient that is all of input, output and weights, or their gradients.
        """
        if self.flop(part, batch_size) is None:
            return None
        images = math.prod(self.input_shape) + math.prod(self.output_shape())
        return 4 * (images * batch_size + sum(map(math.prod, self.weight_shapes().values())))


def pieces(model: Model) -> list[Piece]:
    """In the order of `model.activations()`: of a residual block the body, the shortcut, then the sum."""
    return list(_Cutter(model.layers).cut(model.layers, model.input_shape))


class _Cutter:
    def __init__(self, layers: Sequence[Layer]) -> None:
        self._taken = {layer.name for layer in walk(layers) if isinstance(layer, Named)}
        self._numbers: Counter[str] = Counter()
        self._weights_before = False

    def cut(self, layers: Sequence[Layer], shape: Shape, block: str | None = None) -> Iterator[Piece]:
        """The pieces of these layers, for images of `shape`; `block` is the one that they are in."""
        for layer, relu in _with_relu(layers):
            name = self._name(layer) + (" + relu" if relu else "")
            outermost = block or name
            after = layer.output_shape(shape)
            if isinstance(layer, Residual):
                yield from self.cut(layer.body, shape, outermost)
                yield from self.cut(layer.shortcut, shape, outermost)
                yield Piece(f"{name} (sum)", outermost, (Residual(()), *relu), after, self._weights_before)
            else:
                yield Piece(name, outermost, (layer, *relu), shape, self._weights_before)
            self._weights_before = self._weights_before or bool(weight_shapes([layer]))
            shape = after

    def _name(self, layer: Layer) -> str:
        """Its own; what has none has a number; a block is called by what all names in it begin with.

        No two are called the same.
        """
        if isinstance(layer, Named):
            return layer.name
        inside = [one.name.rpartition(".")[0] for one in walk([layer]) if isinstance(one, Named)]
        shared = commonpath(name.replace(".", "/") for name in inside).replace("/", ".") if inside else ""
        kind = str(layer.__struct_config__.tag)
        self._numbers[kind] += 1
        name = shared
        while not name or name in self._taken:
            name = f"{kind}{self._numbers[kind]}"
            self._numbers[kind] += name in self._taken
        self._taken.add(name)
        return name


def _with_relu(layers: Sequence[Layer]) -> Iterator[tuple[Layer, tuple[Layer, ...]]]:
    """Each layer with the ReLU that is a part of it."""
    index = 0
    while index < len(layers):
        layer, after = layers[index], tuple(layers[index + 1 : index + 2])
        relu = after if isinstance(layer, _ACTIVATED) and after and isinstance(after[0], ReLU) else ()
        yield layer, relu
        index += 1 + len(relu)
