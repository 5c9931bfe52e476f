"""A network: its layers, and the training that its author declared for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from polybench.core.layers import Layer, Named, Shape, activations, state_shapes, walk, weight_shapes
from polybench.core.optimizers import Optimizer


class Model(msgspec.Struct, frozen=True):
    """A network and the training that its author declared for it.

    The last layer gives logits; the loss is always the mean cross-entropy from logits.
    `parity_batch_size` is a batch small enough for the float64 reference: about a second a step.
    `initialization` is Glorot's or He's uniform distribution; see `models.initial_weights`.
    `published_parameters` is how many trained ones its author counts, to which a test holds `parameters()`.
    """

    name: str
    summary: str
    input_shape: Shape
    classes: int
    layers: tuple[Layer, ...]
    batch_size: int
    optimizer: Optimizer
    parity_batch_size: int
    initialization: Literal["glorot", "he"] = "glorot"
    published_parameters: int | None = None

    def __post_init__(self) -> None:
        names = [layer.name for layer in walk(self.layers) if isinstance(layer, Named)]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name} names a layer twice: {', '.join(names)}")
        *_, (_, shape) = self.activations()
        if shape != (self.classes,):
            raise ValueError(f"{self.name} puts out {shape} for {self.classes} classes")

    def weight_shapes(self) -> dict[str, Shape]:
        """What is trained, see `core.layers.weight_shapes`."""
        return weight_shapes(self.layers)

    def state_shapes(self) -> dict[str, Shape]:
        """What changes in training without a gradient, see `core.layers.state_shapes`."""
        return state_shapes(self.layers)

    def tensor_shapes(self) -> dict[str, Shape]:
        """All of it, in the order of files and hashes: what is trained, then the state."""
        return self.weight_shapes() | self.state_shapes()

    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(math.prod(shape) for shape in self.weight_shapes().values())

    def total_parameters(self) -> int:
        """Number of trainable parameters and of the state's values."""
        return sum(math.prod(shape) for shape in self.tensor_shapes().values())

    def activations(self) -> Iterator[tuple[Layer, Shape]]:
        """Each layer, also inside of residual blocks, with the shape that it puts out for one image."""
        return activations(self.layers, self.input_shape)
