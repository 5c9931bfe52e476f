"""The weights that every engine starts from: drawn once from the study's seed, the same on every machine.

Only the raw bits of NumPy's PCG64 are used. Their stream is guaranteed not to change between NumPy
versions, which NumPy does not promise of `Generator.uniform` and its like.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from polybench.core.layer_base import Shape
from polybench.core.model import Model


def initial_weights(model: Model, seed: int) -> dict[str, NDArray[np.float32]]:
    """All of `model.tensor_shapes()` as float32 arrays in the canonical layout, in that order.

    Weights of convolutions, dense layers, embeddings and LSTMs are uniform, with Glorot's limit or, where
    the model asks for it, He's. Biases are zero, an LSTM's forget gate's as well; batch norm's weight is 1,
    its running mean 0 and its running variance 1. Each tensor has a random stream of its own, from the seed
    and its name, so that no layer's weights depend on the layers before it.
    Glorot and Bengio, 2010: https://proceedings.mlr.press/v9/glorot10a.html
    He et al., 2015: https://arxiv.org/abs/1502.01852
    """
    limit = LIMITS[model.initialization]
    return {
        name: _constant(name, shape) if len(shape) == 1 else _uniform(name, shape, seed, limit(shape))
        for name, shape in model.tensor_shapes().items()
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


def he_limit(shape: Shape) -> float:
    """The bound of He's uniform distribution: variance 2 / fan_in."""
    return math.sqrt(6 / math.prod(shape[1:]))


LIMITS: Mapping[str, Callable[[Shape], float]] = {"glorot": glorot_limit, "he": he_limit}

_ONES = ("weight", "running_variance")
"""Of tensors with one axis, which otherwise are 0: the only weights among them are batch norm's."""


_DRAWN_AT_ONCE = 1 << 16
"""Values: their float64 forms stay in the cache, and a layer of 58 million costs no gigabytes on the way."""


def _constant(name: str, shape: Shape) -> NDArray[np.float32]:
    return np.full(shape, name.rpartition(".")[2] in _ONES, np.float32)


def _uniform(name: str, shape: Shape, seed: int, limit: float) -> NDArray[np.float32]:
    stream = PCG64(SeedSequence([seed, zlib.crc32(name.encode())]))
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, values.size, _DRAWN_AT_ONCE):
        piece = values[start : start + _DRAWN_AT_ONCE]
        # A float64 has 53 bits of significand: the top 53 of 64 random bits, as a fraction of 1.
        uniform = (stream.random_raw(piece.size) >> np.uint64(11)) * 2.0**-53
        piece[:] = (2 * uniform - 1) * limit
    return values.reshape(shape)
