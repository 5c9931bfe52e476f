"""Labelled images or sequences in chunks, and the file that contains all of them.

A data set may not fit in this process's memory, so readers yield chunks, which are written to a file. Every
process maps that file, so all share its pages in the page cache.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

IMAGE_SHAPE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
CLASSES = 10
"""Shape and classes of CIFAR-10."""

Shape = tuple[int, ...]
Split = Literal["train", "test"]
Pixels = NDArray[np.uint8]
Inputs = NDArray[np.uint8] | NDArray[np.int32]
"""Pixels, or sequences of features with 255 for 1; or sequences of int32 tokens."""

_HASH_CHUNK_BYTES = 1 << 24


class Chunk(NamedTuple):
    """Images or sequences `first`, `first + 1`, ... of a data set.

    `images` is (n, channels, height, width) uint8, in RGB or grey; or (n, time, features) uint8; or (n, time)
    int32 tokens. `labels` is (n,) uint8 or, with one for each position, (n, time).
    """

    first: int
    images: Inputs
    labels: Pixels


def write_chunks(chunks: Iterable[Chunk], path: Path) -> int:
    """Write all images in NCHW layout, then all labels; accepts chunks in any order. Return the number of images.

    A value takes one byte, a token four.
    """
    labels: dict[int, Pixels] = {}
    image_bytes = 0
    # An earlier data set may still be mapped. Its file stays valid, since this one is new.
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        for chunk in chunks:
            image_bytes = chunk.images.itemsize * math.prod(chunk.images.shape[1:])
            file.seek(chunk.first * image_bytes)
            file.write(np.ascontiguousarray(chunk.images).data)
            labels[chunk.first] = chunk.labels.copy()
        count = sum(len(part) for part in labels.values())
        file.seek(count * image_bytes)
        for first in sorted(labels):
            file.write(labels[first].tobytes())
    return count


def map_chunks(
    path: Path, count: int, shape: Shape = IMAGE_SHAPE, dtype: DTypeLike = np.uint8, label_shape: Shape = ()
) -> tuple[Inputs, Pixels]:
    """Map images (count, *shape) and labels (count, *label_shape) of a file of `write_chunks`, read-only."""
    content = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    size = count * math.prod(shape) * np.dtype(dtype).itemsize
    return content[:size].view(dtype).reshape(count, *shape), content[size:].reshape(count, *label_shape)


def dataset_sha256(images: Inputs, labels: Pixels) -> str:
    """Return the SHA-256 of the uint8 NCHW images, or the int32 tokens, then the labels."""
    digest = hashlib.sha256()
    for array in (images, labels):
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _HASH_CHUNK_BYTES):
            digest.update(flat[start : start + _HASH_CHUNK_BYTES].data)
    return digest.hexdigest()
