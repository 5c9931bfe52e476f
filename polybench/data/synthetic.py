"""Images that nobody has to download: CIFAR-10's shape and statistics, and classes that can be learned.

An image is a smooth field, as photographs are: in each channel a grid of 4 x 4 random values, to which the
class adds a grid of its own, interpolated to 32 x 32, and a fine grain from a pool that all images share.
For a network that takes other images they are interpolated further and cut to its shape, and the grain is
repeated.
All of it is integer arithmetic on raw PCG64 bits, so the same seed gives the same bytes on every machine
and with every NumPy; the golden SHA-256 is in the tests.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import BadInput
from polybench.data.chunks import CLASSES, IMAGE_BYTES, IMAGE_SHAPE, Chunk, Shape, Split

IMAGES: dict[Split, int] = {"train": 50_000, "test": 10_000}
"""Of CIFAR-10's shape; larger images are fewer, so that they take the same room."""

_CHUNK_BYTES = 100 * IMAGE_BYTES
"""Pixels at a time: their intermediate fields fit a second-level cache, which makes it twice as fast."""

_GRID = 4
_WORDS = 8
"""Random 64-bit words an image: 4 grids (brightness and three colours) of 4 x 4 bytes."""

_GRAINS = 256

# CIFAR-10's channel means, .491 .482 .447, times 255. The gains, in 1/64, were found by measuring: after
# clipping to 0..255 the standard deviations are CIFAR-10's .247 .243 .262, to .006 whatever the seed.
_MEANS = (125, 123, 114)
_GAINS = (70, 69, 76)

Field = NDArray[np.int16]


def count(split: Split, shape: Shape = IMAGE_SHAPE) -> int:
    """How many images of this shape there are.

    Raises:
        BadInput: not a single one has room.
    """
    room = IMAGES[split] * IMAGE_BYTES
    if math.prod(shape) > room:
        by = " x ".join(map(str, shape))
        raise BadInput(
            f"no synthetic {split} data of {by}: one takes {math.prod(shape):,} bytes, and all together have"
            f" {room:,}; choose a smaller input, or your own images with --data"
        )
    return min(IMAGES[split], room // math.prod(shape))


def chunks(
    images: int, seed: int, split: Split, shape: Shape = IMAGE_SHAPE, classes: int = CLASSES
) -> Iterator[Chunk]:
    """`images` synthetic images, in order; image i has label i mod `classes`, so the classes are balanced.

    The splits of a seed share the classes and the grain, and have no image in common.

    Raises:
        BadInput: `shape` is not (3, height, width), nor (1, height, width), which is the red of those; or
            there are more classes than a byte can tell.
    """
    if len(shape) != 3 or shape[0] not in (1, 3) or classes > 256:
        raise BadInput(
            f"no synthetic images of shape {shape} in {classes} classes: "
            "they are (3, height, width) or (1, height, width), in 256 classes at most"
        )
    bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"synthetic")]))
    prototypes = _grids(_random_bytes(bits, classes * _WORDS))
    # Or the mean image would depend on the seed.
    prototypes -= (prototypes.sum(axis=0, dtype=np.int32) // classes).astype(np.int16)
    grains = (_random_bytes(bits, _GRAINS * 32 * 32 // 8) % 17).astype(np.int16).reshape(
        _GRAINS, 1, 32, 32
    ) - 8
    if split == "test":
        bits = bits.jumped()
    channels, height, width = shape
    repeats = (1, 1, -(-height // 32), -(-width // 32))
    means = np.array(_MEANS, np.int16).reshape(3, 1, 1)
    at_once = max(1, _CHUNK_BYTES // math.prod(shape))
    for first in range(0, images, at_once):
        labels = np.arange(first, min(first + at_once, images)) % classes
        raw = _random_bytes(bits, len(labels) * _WORDS)
        field = _enlarge(_grids(raw) + prototypes[labels] // 2, height, width)
        # The grain is picked by a byte that the grids use too: it need not be independent of them.
        field += np.tile(grains[raw[:: 8 * _WORDS]], repeats)[..., :height, :width]
        field += means
        yield Chunk(first, np.clip(field[:, :channels], 0, 255).astype(np.uint8), labels.astype(np.uint8))


def _random_bytes(bits: np.random.PCG64, words: int) -> NDArray[np.uint8]:
    """(8 words,) bytes, the lowest of each word first."""
    return bits.random_raw(words).astype("<u8").view(np.uint8)


def _grids(raw: NDArray[np.uint8]) -> Field:
    """(n, 3, 4, 4), centred at 0: brightness, common to the channels, and colour with half its amplitude."""
    values = 2 * raw.astype(np.int16).reshape(-1, 4, _GRID, _GRID) - 255
    gains = np.array(_GAINS, np.int16).reshape(3, 1, 1)
    # At most 1.5 * 255 * 76 = 29,070: it fits 16 bits.
    return (values[:, :1] + values[:, 1:] // 2) * gains // 128


def _enlarge(grids: Field, height: int, width: int) -> Field:
    """(n, 3, 4, 4) to (n, 3, height, width): doubled until it is large enough, then cut."""
    field = grids.swapaxes(2, 3)
    while field.shape[2] < width:
        field = _double(field)
    field = np.ascontiguousarray(field[:, :, :width].swapaxes(2, 3))
    while field.shape[2] < height:
        field = _double(field)
    return np.ascontiguousarray(field[:, :, :height])


def _double(field: Field) -> Field:
    """(n, 3, h, w) to (n, 3, 2 h, w), linearly: 3/4 the nearest row, 1/4 the next, borders repeated."""
    images, channels, height, width = field.shape
    padded = np.concatenate([field[:, :, :1], field, field[:, :, -1:]], axis=2)
    nearest = 3 * field + 2  # + 2, half of 4, rounds the division below
    doubled = np.empty((images, channels, height, 2, width), np.int16)
    np.add(nearest, padded[:, :, :-2], out=doubled[:, :, :, 0])
    np.add(nearest, padded[:, :, 2:], out=doubled[:, :, :, 1])
    doubled >>= 2
    return doubled.reshape(images, channels, 2 * height, width)
