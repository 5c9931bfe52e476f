"""Order of the images in batches, and their augmentation, both reproducible by hand from the seed.

Epoch e of seed s shuffles 0, 1, ..., N - 1 with the Fisher-Yates algorithm in Durstenfeld's form, using the
raw 64-bit outputs r_0, r_1, ... of PCG64(SeedSequence([s, e])). For i = N - 1 down to 1, with k = N - 1 - i,

    u_k = floor(r_k / 2^11) * 2^-53        the top 53 bits, a float64 in [0, 1)
    j = floor(u_k * (i + 1))               in float64, 0 <= j <= i
    swap the values at i and j.

Batch b has the values at b B to b B + B - 1; a partial last batch is dropped.

Augmentation: image i of epoch e, in the epoch's order, uses the i-th raw 64-bit output r of
PCG64(SeedSequence([s, e, crc32("augmentation")])). In integer arithmetic,

    flip = r >> 63                            mirror left and right, or not
    dy   = ((r >> 32) mod 2^31) * 9 >> 31, minus 4
    dx   = (r mod 2^32) * 9 >> 32, minus 4    each -4 to 4.

The flip comes before the offset: the pixel at (y, x) is the flipped image's at (y + dy, x + dx), and 0
outside. This is a random crop of the image padded with 4 zeros, the usual augmentation for CIFAR-10; larger
images are shifted by as many pixels.
"""

from __future__ import annotations

import hashlib
import zlib

import numpy as np
from numpy.typing import NDArray

from polybench.errors import BadInput

Order = NDArray[np.int64]

MAX_CROP_OFFSET = 4
"""Largest shift of an image by `augment`, in pixels, in each direction."""

Augmentations = NDArray[np.int8]
"""(..., 3): flip (0 or 1), dy, dx of each image."""


def epoch_order(images: int, batch_size: int, seed: int, epoch: int) -> Order:
    """Return the batches of one epoch: (steps, batch) indices of images, each at most once.

    Raises BadInput if a batch would be empty, or larger than the data.
    """
    steps = _steps_per_epoch(images, batch_size)
    return _permutation(images, seed, epoch)[: steps * batch_size].reshape(steps, batch_size)


def batch_stream(images: int, batch_size: int, seed: int, steps: int) -> Order:
    """Return the first `steps` batches of training over consecutive epochs: (steps, batch) indices of images."""
    per_epoch = _steps_per_epoch(images, batch_size)
    epochs = range(-(-steps // per_epoch))
    orders = [epoch_order(images, batch_size, seed, epoch) for epoch in epochs]
    return np.concatenate([np.empty((0, batch_size), np.int64), *orders])[:steps]


def repeated_rows(batch_size: int, different: int) -> NDArray[np.int64]:
    """Return a batch of `batch_size` rows that has at most `different` different ones, as their numbers.

    No part of the batch has the same shares of them as all of it, because one row occurs only once. So results of a
    part, such as a mean loss, differ from those of the batch, while the reference computes each row only once.
    """
    if batch_size <= different:
        return np.arange(batch_size)
    raw = np.random.PCG64(np.random.SeedSequence([batch_size, different])).random_raw(batch_size)
    rows = (raw % np.uint64(max(different - 1, 1))).astype(np.int64)
    rows[batch_size // 2] = different - 1
    return rows


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


def epoch_augmentations(images: int, seed: int, epoch: int) -> Augmentations:
    """Return the (images, 3) augmentations of the first images of an epoch's order."""
    stream = np.random.PCG64(np.random.SeedSequence([seed, epoch, zlib.crc32(b"augmentation")]))
    raw = stream.random_raw(images).astype(np.uint64)
    offsets = np.uint64(2 * MAX_CROP_OFFSET + 1)
    high, low = (raw >> np.uint64(32)) & np.uint64(2**31 - 1), raw & np.uint64(2**32 - 1)
    dy, dx = high * offsets >> np.uint64(31), low * offsets >> np.uint64(32)
    augmentations = np.stack([raw >> np.uint64(63), dy, dx], axis=1).astype(np.int8)
    augmentations[:, 1:] -= MAX_CROP_OFFSET
    return augmentations


def augmentation_stream(per_epoch: int, batch_size: int, seed: int, steps: int) -> Augmentations:
    """Return (steps, batch, 3) for the first `steps` batches of training, `per_epoch` batches per epoch."""
    epochs = range(-(-steps // per_epoch))
    parts = [epoch_augmentations(per_epoch * batch_size, seed, epoch) for epoch in epochs]
    return np.concatenate([np.empty((0, 3), np.int8), *parts]).reshape(-1, batch_size, 3)[:steps]


def augment(images: NDArray[np.uint8], augmentations: Augmentations) -> NDArray[np.uint8]:
    """Return new images (n, channels, height, width), augmented by `augmentations` (n, 3).

    This is the reference. Every engine's pipeline has its own implementation, which is tested against it.
    """
    border = MAX_CROP_OFFSET
    height, width = images.shape[2:]
    augmented = np.empty_like(images)
    for image, (flip, dy, dx), out in zip(images, augmentations.tolist(), augmented, strict=True):
        padded = np.pad(image[..., ::-1] if flip else image, ((0, 0), (border, border), (border, border)))
        top, left = border + dy, border + dx
        out[...] = padded[:, top : top + height, left : left + width]
    return augmented
