"""How the images of an epoch are varied: decisions that anybody can repeat by hand, and what they do.

Image i of epoch e of seed s, in the epoch's order, has the i-th raw 64-bit output r of
PCG64(SeedSequence([s, e, crc32("augmentation")])), and from it, in whole numbers,

    flip = r >> 63                            left and right exchanged, or not
    dy   = ((r >> 32) mod 2^31) * 9 >> 31, minus 4
    dx   = (r mod 2^32) * 9 >> 32, minus 4    each -4 to 4.

First the flip, then the shift: the pixel at (y, x) is the flipped image's at (y + dy, x + dx), and 0 outside.
That is a random crop of the image with a border of 4 zeros, as networks on CIFAR-10 are trained; larger
images are shifted by as many pixels.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from polybench.core.spec import LARGEST_SHIFT

Decisions = NDArray[np.int8]
"""(..., 3): flip (0 or 1), dy, dx; an image each."""


def epoch_decisions(images: int, seed: int, epoch: int) -> Decisions:
    """(images, 3) decisions for the first images of an epoch's order."""
    stream = np.random.PCG64(np.random.SeedSequence([seed, epoch, zlib.crc32(b"augmentation")]))
    raw = stream.random_raw(images).astype(np.uint64)
    shifts = np.uint64(2 * LARGEST_SHIFT + 1)
    high, low = (raw >> np.uint64(32)) & np.uint64(2**31 - 1), raw & np.uint64(2**32 - 1)
    dy, dx = high * shifts >> np.uint64(31), low * shifts >> np.uint64(32)
    decisions = np.stack([raw >> np.uint64(63), dy, dx], axis=1).astype(np.int8)
    decisions[:, 1:] -= LARGEST_SHIFT
    return decisions


def decision_stream(per_epoch: int, batch_size: int, seed: int, steps: int) -> Decisions:
    """(steps, batch, 3) for the first `steps` batches of training, `per_epoch` of them an epoch."""
    epochs = range(-(-steps // per_epoch))
    parts = [epoch_decisions(per_epoch * batch_size, seed, epoch) for epoch in epochs]
    return np.concatenate([np.empty((0, 3), np.int8), *parts]).reshape(-1, batch_size, 3)[:steps]


def augment(images: NDArray[np.uint8], decisions: Decisions) -> NDArray[np.uint8]:
    """New images (n, channels, height, width), varied as `decisions` (n, 3) say.

    This is the rule. Every engine's pipeline has its own way to it, and is checked against it.
    """
    border = LARGEST_SHIFT
    height, width = images.shape[2:]
    varied = np.empty_like(images)
    for image, (flip, dy, dx), out in zip(images, decisions.tolist(), varied, strict=True):
        padded = np.pad(image[..., ::-1] if flip else image, ((0, 0), (border, border), (border, border)))
        top, left = border + dy, border + dx
        out[...] = padded[:, top : top + height, left : left + width]
    return varied
