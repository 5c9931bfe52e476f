"""FLOP and compulsory bytes of every network's layers against XLA's own account of what it was given."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from polybench.core.document.layers import Part
from polybench.core.layer_base import Shape
from polybench.core.layers import Conv, Dense, Layer
from polybench.core.pieces import Piece, pieces
from polybench.models import MODELS, find_model
from tests.engines.lab import Lab, in_process_of

IMAGES = 2
BY_SIZE = ("catdog-4", "resnet32@48")
"""Networks whose layers depend on a number in their name; also MODELS."""


def convolutions_and_products() -> Iterator[Piece]:
    """Of all networks, each once."""
    seen: set[tuple[Layer, Shape]] = set()
    for model in (*MODELS.values(), *map(find_model, BY_SIZE)):
        for piece in pieces(model):
            if isinstance(piece.layer, Conv | Dense):
                shape = msgspec.structs.replace(piece.layer, name=""), piece.input_shape
                if shape not in seen:
                    seen.add(shape)
                    yield piece


def times_padding(layer: Conv | Dense, piece: Piece) -> int:
    """Multiply-adds of an image that multiply with the zeros around it: XLA counts none of them, we do."""
    if isinstance(layer, Dense) or not layer.pad:
        return 0
    _, *sizes = piece.input_shape
    outputs, *places = piece.output_shape()
    inside = math.prod(
        sum(0 <= at * layer.stride + tap - layer.pad < size for at in range(n) for tap in range(layer.kernel))
        for n, size in zip(places, sizes, strict=True)
    )
    return layer.inputs * outputs * (layer.kernel**2 * math.prod(places) - inside)


def counted_by_xla(piece: Piece) -> dict[Part, tuple[int, int]]:
    """FLOP and bytes of each part of this layer as the engine writes it, before anything is fused."""
    import jax
    import jax.numpy as jnp

    from polybench.engines.jax.layers import Inference

    def forward(x: Any, weights: Any) -> Any:
        return Inference(weights, {}).layer(piece.layer, x)

    def data_gradient(x: Any, weights: Any, dy: Any) -> Any:
        return jax.vjp(lambda x: forward(x, weights), x)[1](dy)

    def weight_gradient(x: Any, weights: Any, dy: Any) -> Any:
        (name,) = (name for name in weights if name.endswith(".weight"))
        return jax.vjp(lambda one: forward(x, weights | {name: one}), weights[name])[1](dy)

    weights = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in piece.weight_shapes().items()
    }
    x, dy = (
        jax.ShapeDtypeStruct((IMAGES, *shape), jnp.float32)
        for shape in (piece.input_shape, piece.output_shape())
    )
    costs: dict[Part, Any] = {
        "forward": jax.jit(forward).lower(x, weights).cost_analysis(),
        "data gradient": jax.jit(data_gradient).lower(x, weights, dy).cost_analysis(),
        "weight gradient": jax.jit(weight_gradient).lower(x, weights, dy).cost_analysis(),
    }
    return {part: (cost["flops"], cost["bytes accessed"]) for part, cost in costs.items()}


@in_process_of("jax")
def test_flop_and_bytes_are_those_that_xla_counts(lab: Lab) -> None:
    for piece in (checked := list(convolutions_and_products())):
        layer = piece.layer
        assert isinstance(layer, Conv | Dense)
        kernel, bias = (
            math.prod(piece.weight_shapes().get(f"{layer.name}.{one}", (0,))) for one in ("weight", "bias")
        )
        sums = IMAGES * math.prod(piece.output_shape()) if bias else 0
        flipped = isinstance(layer, Conv) and layer.kernel > 1
        for part, (flop, moved) in counted_by_xla(piece).items():
            ours, compulsory = piece.flop(part, IMAGES), piece.compulsory_bytes(part, IMAGES)
            assert ours is not None
            assert compulsory is not None
            direct = ours - 2 * IMAGES * times_padding(layer, piece)
            where = piece, part
            if part == "forward":  # with the bias: a sum for each value that is put out
                assert flop == direct + sums, where
                continue
            assert flop == direct, where
            # The bias has no part in it. The gradient of the data is a convolution with the kernel turned
            # round, which is read and written for that.
            turned = 2 * kernel if part == "data gradient" and flipped else 0
            assert moved == compulsory + 4 * (turned - bias), where
    assert len(checked) > 30
