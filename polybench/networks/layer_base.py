"""The base of every layer record, and the limits of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

Shape = tuple[int, ...]

Size = Annotated[int, Meta(ge=1, le=1 << 24)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
"""Limits of all engines, which msgspec checks when it reads a layer."""


class LayerBase(msgspec.Struct, frozen=True):
    """A layer without tensors whose output has the shape of its input; subclasses override what differs.

    Attributes:
        is_activation: True if it computes each value from one of the input.
        is_norm: True if it divides values by their own standard deviation.
        is_random: True if training draws random numbers.
        is_lookup: True if it reads rows of a table at the input's tokens.
        has_product: True if it multiplies its input by weights, or looks up rows of them.
        has_fast_algorithm: True if an algorithm with fewer products than `macs` computes it, such as Winograd's.
        fuses_relu: True if users write it together with a ReLU after it, and engines compute both at once.
        rules: fields of `NumericalConventions`, the rules in which engines differ for it.
        inferred: fields that equal the size of this axis of the input: its channels, features or length.
    """

    is_activation: ClassVar[bool] = False
    is_norm: ClassVar[bool] = False
    is_random: ClassVar[bool] = False
    is_lookup: ClassVar[bool] = False
    has_product: ClassVar[bool] = False
    has_fast_algorithm: ClassVar[bool] = False
    fuses_relu: ClassVar[bool] = False
    rules: ClassVar[tuple[str, ...]] = ()
    inferred: ClassVar[Mapping[str, int]] = {}

    def weight_shapes(self) -> dict[str, Shape]:
        """Return the canonical shape of each trained tensor, by name."""
        return {}

    def state_shapes(self) -> dict[str, Shape]:
        """Return the shape of each tensor that training changes without a gradient, by name."""
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        """Return the output shape for one image or sequence; raises ValueError if `shape` does not fit."""
        return shape

    def macs(self, shape: Shape) -> int:
        """Return the multiply-accumulate operations (MACs) of the forward pass for one image or sequence.

        Counted as papers do (He et al., 2015, section 3.3: https://arxiv.org/abs/1512.03385). Activations, pooling
        and batch norm take time but hardly multiply, so they count as 0.
        """
        return 0

    def recurrent_macs(self, shape: Shape) -> int:
        """Return those of `macs` that use the layer's own output instead of its input."""
        return 0

    def score_macs(self, shape: Shape) -> int:
        """Return those of `macs` that multiply values of the input by each other instead of by weights."""
        return 0


def expect_inputs(name: str, inputs: int, found: int, shape: Shape) -> None:
    """Raise ValueError if the input of a layer does not have as many channels or features as expected."""
    if found != inputs:
        raise ValueError(f"{name}: expected {inputs} channels or features, got {shape}")
