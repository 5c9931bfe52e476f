"""Dropout masks that every engine can be given: their own generators would never agree.

For the identity check only; what is timed is each engine's own dropout.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from polybench.core.layer_base import Shape
from polybench.core.layers import Dropout
from polybench.core.model import Model


def dropout_masks(model: Model, batch_size: int, seed: int, step: int) -> dict[str, NDArray[np.float64]]:
    """For each dropout layer, by name, what its input is multiplied with in training step `step`.

    An array (batch_size, *shape of the layer's input), canonical (channels first): 0 with probability `rate`,
    else 1 / (1 - rate).
    """
    return {
        layer.name: dropout_mask(layer, (batch_size, *shape), seed, step)
        for layer, shape in model.activations()
        if isinstance(layer, Dropout)
    }


def dropout_mask(layer: Dropout, shape: Shape, seed: int, step: int) -> NDArray[np.float64]:
    """From the raw bits of a stream of its own, as initial weights are; u < rate drops, u in [0, 1)."""
    stream = PCG64(SeedSequence([seed, zlib.crc32(layer.name.encode()), step]))
    uniform = (stream.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
    return np.where(uniform < layer.rate, 0.0, 1 / (1 - layer.rate)).reshape(shape)
