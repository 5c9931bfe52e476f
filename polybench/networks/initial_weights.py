"""Initial weights of every engine, drawn once from the study's seed and identical on every machine.

Only the raw bits of NumPy's PCG64 are used. NumPy guarantees that this stream never changes between versions;
it gives no such guarantee for `Generator.uniform`.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from polybench.networks.layers import Shape
from polybench.networks.model import Model

_INITIALLY_ONE = ("weight", "running_variance")
"""Suffixes of one-axis tensors that start at 1; the only such weights are those of norms. All others start at
0."""

_CHUNK_VALUES = 1 << 16
"""Number of values drawn at once: their float64 forms fit in the cache, and 58 million weights take no extra
gigabytes."""


def initial_weights(model: Model, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return all of `model.tensor_shapes()`, in that order, as float32 arrays in the canonical layout.

    Weights of convolutions, dense layers, embeddings, positions, attention and LSTMs are uniform within Glorot's
    limit, or He's if the model requests it. Biases and class tokens are zero, including an LSTM's forget gate. Norms
    start with weight 1, and batch norm with running mean 0 and running variance 1. The random stream of a tensor
    depends on the seed and the tensor's name, so a layer's weights do not depend on the layers before it.
    Glorot and Bengio, 2010: https://proceedings.mlr.press/v9/glorot10a.html
    He et al., 2015: https://arxiv.org/abs/1502.01852
    """
    limit = LIMITS[model.initialization]
    return {
        name: np.full(shape, name.rpartition(".")[2] in _INITIALLY_ONE, np.float32)
        if len(shape) == 1
        else _uniform(name, shape, seed, limit(shape))
        for name, shape in model.tensor_shapes().items()
    }


def weights_sha256(weights: Mapping[str, NDArray[np.float32]]) -> str:
    """Return the SHA-256, as hex digits, of all tensors' bytes: little-endian float32, C order, concatenated.

    The order is that of the mapping; `initial_weights` returns layer order, with the weight before the bias.
    Names are not hashed: renaming a layer without changing its bits keeps the hash.
    """
    digest = hashlib.sha256()
    for value in weights.values():
        digest.update(np.ascontiguousarray(value, dtype="<f4").tobytes())
    return digest.hexdigest()


def glorot_limit(shape: Shape) -> float:
    """Return the bound of Glorot's uniform distribution for a dense or convolution weight (out, in, ...)."""
    return math.sqrt(6 / ((shape[0] + shape[1]) * math.prod(shape[2:])))


LIMITS: Mapping[str, Callable[[Shape], float]] = {
    "glorot": glorot_limit,
    "he": lambda shape: math.sqrt(6 / math.prod(shape[1:])),  # variance 2 / fan_in
}


def _uniform(name: str, shape: Shape, seed: int, limit: float) -> NDArray[np.float32]:
    stream = PCG64(SeedSequence([seed, zlib.crc32(name.encode())]))
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, values.size, _CHUNK_VALUES):
        chunk = values[start : start + _CHUNK_VALUES]
        # A float64 has 53 bits of significand: the top 53 of 64 random bits, as a fraction of 1.
        uniform = (stream.random_raw(chunk.size) >> np.uint64(11)) * 2.0**-53
        chunk[:] = (2 * uniform - 1) * limit
    return values.reshape(shape)
