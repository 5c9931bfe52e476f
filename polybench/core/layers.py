"""The layer vocabulary: what a network is, without a framework.

Canonical layout, for every engine: images (batch, channels, height, width), convolution
weights (out, in, kernel height, kernel width), dense weights (out, in), C order. A flatten
layer reads its input in that order, channels first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from polybench.core.optimizers import Optimizer

Shape = tuple[int, ...]


class Conv(msgspec.Struct, frozen=True, tag="conv"):
    """Cross-correlation with bias, stride 1, no padding ("valid")."""

    name: str
    inputs: int
    outputs: int
    kernel: int

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.outputs, self.inputs, self.kernel, self.kernel), "bias": (self.outputs,)}

    def output_shape(self, shape: Shape) -> Shape:
        _, height, width = shape
        return (self.outputs, height - self.kernel + 1, width - self.kernel + 1)


class MaxPool(msgspec.Struct, frozen=True, tag="max_pool"):
    """Maximum over windows of `size` x `size` that do not overlap; a rest at the border is dropped."""

    size: int

    def weight_shapes(self) -> dict[str, Shape]:
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = shape
        return (channels, height // self.size, width // self.size)


class ReLU(msgspec.Struct, frozen=True, tag="relu"):
    """max(x, 0), with gradient 0 at 0."""

    def weight_shapes(self) -> dict[str, Shape]:
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class Flatten(msgspec.Struct, frozen=True, tag="flatten"):
    """(channels, height, width) to one axis, in canonical (C) order."""

    def weight_shapes(self) -> dict[str, Shape]:
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


class Dense(msgspec.Struct, frozen=True, tag="dense"):
    """x W' + b with W of shape (out, in)."""

    name: str
    inputs: int
    outputs: int

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}

    def output_shape(self, _: Shape) -> Shape:
        return (self.outputs,)


Layer = Conv | MaxPool | ReLU | Flatten | Dense


class Model(msgspec.Struct, frozen=True):
    """A network and the training that its author declared for it.

    The last layer gives logits; the loss is always the mean cross-entropy from logits.
    `parity_batch_size` is the largest batch for which the float64 reference takes about a second.
    """

    name: str
    summary: str
    input_shape: Shape
    classes: int
    layers: tuple[Layer, ...]
    batch_size: int
    optimizer: Optimizer
    parity_batch_size: int

    def weight_shapes(self) -> dict[str, Shape]:
        """`layer_name.weight` and `layer_name.bias` to canonical shape, in layer order."""
        return {
            f"{layer.name}.{part}": shape
            for layer in self.layers
            if isinstance(layer, Conv | Dense)
            for part, shape in layer.weight_shapes().items()
        }

    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(math.prod(shape) for shape in self.weight_shapes().values())

    def activations(self) -> Iterator[tuple[Layer, Shape]]:
        """Each layer with the shape that it puts out for one image."""
        shape = self.input_shape
        for layer in self.layers:
            shape = layer.output_shape(shape)
            yield layer, shape
