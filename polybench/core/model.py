"""A network: its layers, and the training that its author declared for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from polybench.core.layer_base import Shape
from polybench.core.layers import Layer, Named, activations, state_shapes, walk, weight_shapes
from polybench.core.optimizers import Optimizer
from polybench.core.sequence_layers import Embedding


class Model(msgspec.Struct, frozen=True):
    """A network and the training that its author declared for it.

    The last layer gives logits; the loss is always the mean cross-entropy from logits.
    `input_shape` is that of one image (channels, height, width), of one sequence of features (time, features)
    or, where the first layer is an embedding, of one sequence of tokens (time,).
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
        if any(isinstance(layer, Embedding) for layer in walk(self.layers[1:])):
            raise ValueError(
                f"{self.name}: an embedding takes the input's tokens, so only the first layer is one"
            )
        *_, (_, shape) = self.activations()
        if shape != (self.classes,):
            raise ValueError(f"{self.name} puts out {shape} for {self.classes} classes")

    @property
    def vocabulary(self) -> int | None:
        """How many tokens there are; None where the input is numbers, not tokens."""
        first = self.layers[0]
        return first.vocabulary if isinstance(first, Embedding) else None

    @property
    def unit(self) -> Literal["image", "sequence"]:
        """What one input is called."""
        return "image" if len(self.input_shape) == 3 else "sequence"

    def unnamed(self) -> Model:
        """What it computes, whatever it is called and what is said of it."""
        return msgspec.structs.replace(self, name="", summary="", published_parameters=None)

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
