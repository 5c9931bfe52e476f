"""Reference inference: no dropout, batch norm with its running statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polybench.engines.base import Array, Weights
from polybench.engines.reference.network import forward
from polybench.engines.shared.arrays import as_input
from polybench.networks.layers import BatchNorm, Dropout, Layer, Residual
from polybench.networks.model import Model


def logits(model: Model, weights: Weights, images: Array) -> Array:
    """Compute logits (batch, classes), float64, of inputs (batch, *model.input_shape): floats or tokens."""
    return _sequence(model.layers, as_input(images, "float64"), weights)


def _sequence(layers: Sequence[Layer], x: Array, weights: Weights) -> Array:
    for layer in layers:
        match layer:
            case BatchNorm():
                x = _batch_norm(layer, x, weights)
            case Dropout():
                pass
            case Residual():
                x = _sequence(layer.body, x, weights) + _sequence(layer.shortcut, x, weights)
            case _:
                x = forward(layer, x, weights)
    return x


def _batch_norm(layer: BatchNorm, x: Array, weights: Weights) -> Array:
    scale, shift, mean, variance = (
        weights[f"{layer.name}.{tensor}"].reshape(-1, *[1] * (x.ndim - 2))
        for tensor in ("weight", "bias", "running_mean", "running_variance")
    )
    y: Array = scale * (x - mean) / np.sqrt(variance + layer.epsilon) + shift
    return y
