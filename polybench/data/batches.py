"""Order of the images in batches: reproducible by hand from the seed.

Epoch e of seed s shuffles 0, 1, ..., N - 1 with the Fisher-Yates algorithm in Durstenfeld's form, using the
raw 64-bit outputs r_0, r_1, ... of PCG64(SeedSequence([s, e])). For i = N - 1 down to 1, with k = N - 1 - i,

    u_k = floor(r_k / 2^11) * 2^-53        the top 53 bits, a float64 in [0, 1)
    j = floor(u_k * (i + 1))               in float64, 0 <= j <= i
    swap the values at i and j.

Batch b has the values at b B to b B + B - 1; a partial last batch is dropped.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from polybench.errors import BadInput

Order = NDArray[np.int64]


def epoch_order(images: int, batch_size: int, seed: int, epoch: int) -> Order:
    """Return the batches of one epoch: (steps, batch) indices of images, each at most once.

    Raises:
        BadInput: a batch would be empty, or larger than the data.
    """
    steps = _steps_per_epoch(images, batch_size)
    return _permutation(images, seed, epoch)[: steps * batch_size].reshape(steps, batch_size)


def batch_stream(images: int, batch_size: int, seed: int, steps: int) -> Order:
    """Return the first `steps` batches of training over consecutive epochs: (steps, batch) indices of images.

    Raises:
        BadInput: a batch would be empty, or larger than the data.
    """
    per_epoch = _steps_per_epoch(images, batch_size)
    epochs = range(-(-steps // per_epoch))
    orders = [epoch_order(images, batch_size, seed, epoch) for epoch in epochs]
    return np.concatenate([np.empty((0, batch_size), np.int64), *orders])[:steps]


def order_sha256(order: Order) -> str:
    """Return the SHA-256 of the indices as little-endian int64, batch after batch."""
    return hashlib.sha256(np.ascontiguousarray(order, "<i8").data).hexdigest()


def _steps_per_epoch(images: int, batch_size: int) -> int:
    if batch_size < 1:
        raise BadInput(f"invalid batch size {batch_size}: expected at least 1")
    if batch_size > images:
        raise BadInput(
            f"batch size {batch_size} is larger than the data, which has {images} images; "
            f"use --batch-size {images} or less"
        )
    return images // batch_size


def _permutation(images: int, seed: int, epoch: int) -> Order:
    raw = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(images - 1)
    uniform = (raw >> np.uint64(11)) * 2.0**-53
    partners = (uniform * np.arange(images, 1, -1)).astype(np.int64).tolist()
    values = list(range(images))
    for i, j in zip(range(images - 1, 0, -1), partners, strict=True):
        values[i], values[j] = values[j], values[i]
    return np.array(values, np.int64)
