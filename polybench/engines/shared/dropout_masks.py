"""Dropout masks shared by all engines, since the engines' own generators differ.

Only the parity check uses them; timed steps use each engine's own dropout.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from polybench.networks.layers import Dropout, Shape
from polybench.networks.model import Model


def dropout_masks(model: Model, batch_size: int, seed: int, step: int) -> dict[str, NDArray[np.float64]]:
    """Generate the masks by which dropout layers multiply their inputs in step `step`, by layer name.

    A mask is (batch_size, *input shape of the layer), canonical layout (channels first): 0 with probability
    `rate`, else 1 / (1 - rate).
    """
    return {
        layer.name: dropout_mask(layer, (batch_size, *shape), seed, step)
        for layer, shape in model.activations()
        if isinstance(layer, Dropout)
    }


def dropout_mask(layer: Dropout, shape: Shape, seed: int, step: int) -> NDArray[np.float64]:
    """Generate a layer's mask from the raw bits of its own random stream; u < rate drops, u in [0, 1)."""
    stream = PCG64(SeedSequence([seed, zlib.crc32(layer.name.encode()), step]))
    uniform = (stream.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
    return np.where(uniform < layer.rate, 0.0, 1 / (1 - layer.rate)).reshape(shape)
