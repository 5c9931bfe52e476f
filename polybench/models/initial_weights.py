"""The weights that every engine starts from: drawn once from the study's seed, the same on every machine.

Only the raw bits of NumPy's PCG64 are used. Their stream is guaranteed not to change between NumPy
versions, which NumPy does not promise of `Generator.uniform` and its like.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from polybench.core.layers import Model, Shape


def initial_weights(model: Model, seed: int) -> dict[str, NDArray[np.float32]]:
    """`layer_name.weight` and `layer_name.bias` to float32 arrays in the canonical layout, in layer order.

    Weights are Glorot uniform, biases zero. Each tensor has a random stream of its own, from the seed
    and its name, so that no layer's weights depend on the layers before it.
    Glorot and Bengio, 2010: https://proceedings.mlr.press/v9/glorot10a.html
    """
    return {
        name: np.zeros(shape, np.float32) if name.endswith(".bias") else _glorot_uniform(name, shape, seed)
        for name, shape in model.weight_shapes().items()
    }


def weights_sha256(weights: Mapping[str, NDArray[np.float32]]) -> str:
    """SHA-256, as hex digits, of all tensors' bytes: little-endian float32, C order, one after the other.

    The order is that of the mapping, which is layer order as `initial_weights` gives it, the weight
    before the bias. Names do not enter: renaming a layer (same bits) leaves the hash as it is.
    """
    digest = hashlib.sha256()
    for value in weights.values():
        digest.update(np.ascontiguousarray(value, dtype="<f4").tobytes())
    return digest.hexdigest()


def glorot_limit(shape: Shape) -> float:
    """The bound of Glorot's uniform distribution for a weight (out, in, ...): dense, or with a kernel."""
    outputs, inputs, *kernel = shape
    area = math.prod(kernel)
    return math.sqrt(6 / (inputs * area + outputs * area))


def _glorot_uniform(name: str, shape: Shape, seed: int) -> NDArray[np.float32]:
    stream = PCG64(SeedSequence([seed, zlib.crc32(name.encode())]))
    # A float64 has 53 bits of significand: the top 53 of 64 random bits, as a fraction of 1.
    uniform = (stream.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
    return ((2 * uniform - 1) * glorot_limit(shape)).astype(np.float32).reshape(shape)
