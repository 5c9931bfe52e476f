"""Parts of a layer and of a step, which Julia computes and times."""

from __future__ import annotations

from typing import Any

from polybench.core.document.layers import Part
from polybench.core.pieces import Piece
from polybench.engines.base import Array, Replayed, Weights
from polybench.engines.flux.crossing import addresses, as_toml
from polybench.engines.support.arrays import as_input, is_tokens


def replay(
    julia: Any, trainer: Any, piece: Piece, weights: Weights, x: Array, dy: Array
) -> dict[Part, Replayed]:
    """The parts of a layer; arguments as in `engines.base.Engine.replay`.

    Args:
        julia: the package PolyBench.
        trainer: its trainer, whose type `weights` have.
        piece: the layer.
        weights: C order, in the order of `piece.tensor_shapes()`.
        x: its input.
        dy: the gradient of its output.
    """
    x, dy = (as_input(array, "float32") for array in (x, dy))
    wanted = tuple(gradient.part for gradient in piece.gradients())
    found = julia.replay(
        trainer, as_toml(piece.layers), addresses(weights),
        x.ctypes.data, x.shape, dy.ctypes.data, dy.shape, wanted, is_tokens(x),
    )  # fmt: skip
    return timed(julia, found)


def timed(julia: Any, parts: Any) -> dict[Part, Replayed]:
    """Of pairs (name, part) of Julia's."""

    def stopwatch(part: Any) -> Replayed:
        return Replayed(lambda n: float(julia.seconds(part, n)))

    return {str(name): stopwatch(part) for name, part in parts}  # type: ignore[misc]
