"""Augmentation of an epoch's images: reproducible by hand from the seed.

Image i of epoch e of seed s, in the epoch's order, uses the i-th raw 64-bit output r of
PCG64(SeedSequence([s, e, crc32("augmentation")])). In integer arithmetic,

    flip = r >> 63                            mirror left and right, or not
    dy   = ((r >> 32) mod 2^31) * 9 >> 31, minus 4
    dx   = (r mod 2^32) * 9 >> 32, minus 4    each -4 to 4.

The flip comes before the offset: the pixel at (y, x) is the flipped image's at (y + dy, x + dx), and 0
outside. This is a random crop of the image padded with 4 zeros, the usual augmentation for CIFAR-10; larger
images are shifted by as many pixels.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

MAX_CROP_OFFSET = 4
"""Largest shift of an image by `augment`, in pixels, in each direction."""

Augmentations = NDArray[np.int8]
"""(..., 3): flip (0 or 1), dy, dx of each image."""


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
