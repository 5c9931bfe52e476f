"""Labelled images or sequences in chunks, and the file that holds all of them.

A data set may be larger than what this process should keep in memory, so readers give chunks, chunks
go to a file, and everybody maps that file: its pages belong to the page cache, shared by all processes.
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
"""Those of CIFAR-10."""

Shape = tuple[int, ...]
Split = Literal["train", "test"]
Pixels = NDArray[np.uint8]
Inputs = NDArray[np.uint8] | NDArray[np.int32]
"""Pixels, or features of sequences, 255 for 1; or tokens, which are int32."""

_HASHED_AT_ONCE = 1 << 24


class Chunk(NamedTuple):
    """Images or sequences `first`, `first + 1`, ... of a data set.

    `images` is (n, channels, height, width) uint8, red, green, blue, or grey; or (n, time, features) uint8;
    or (n, time) int32 tokens. `labels` is (n,) uint8.
    """

    first: int
    images: Inputs
    labels: Pixels


def write_chunks(chunks: Iterable[Chunk], path: Path) -> int:
    """Write all images, NCHW, and then all labels, a byte each value, or four a token; chunks in any order.

    Returns:
        The number of images.
    """
    labels: dict[int, Pixels] = {}
    image_bytes = 0
    # A data set that was opened before may still be mapped: it keeps its file, this is a new one.
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
    path: Path, count: int, shape: Shape = IMAGE_SHAPE, dtype: DTypeLike = np.uint8
) -> tuple[Inputs, Pixels]:
    """Images (count, *shape) and labels (count,) of a file of `write_chunks`, read-only and mapped."""
    content = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    size = count * math.prod(shape) * np.dtype(dtype).itemsize
    return content[:size].view(dtype).reshape(count, *shape), content[size:]


def sha256(images: Inputs, labels: Pixels) -> str:
    """SHA-256 of the uint8 NCHW images, or the int32 tokens, then the labels."""
    digest = hashlib.sha256()
    for array in (images, labels):
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _HASHED_AT_ONCE):
            digest.update(flat[start : start + _HASHED_AT_ONCE].data)
    return digest.hexdigest()
