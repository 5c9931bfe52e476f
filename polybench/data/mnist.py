"""MNIST as its authors publish it: four IDX files, plain or gzipped.

`train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, `t10k-...` for the test images. An IDX file has a
magic number and the length of each axis as big-endian 32-bit integers, then a byte per value. The official
files have 60,000 and 10,000 images; smaller files are accepted. http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from polybench.data.array_chunks import Chunk, Pixels, Split
from polybench.errors import BadInput

IMAGE_SHAPE = (1, 28, 28)
CLASSES = 10

FILES: dict[Split, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
FOLDERS = ("mnist", "MNIST/raw")
"""Subfolders of a folder of data sets; the second is torchvision's."""
HINT = f"MNIST is {', '.join(name for files in FILES.values() for name in files)}, each with or without .gz"

_MAX_IMAGES = 150_000
"""More than any published file has; a larger number in a header is treated as damage."""
_IMAGES_PER_CHUNK = 1000
_UNSIGNED_BYTES = 8


def locate(path: Path) -> Path | None:
    """Return the folder with the files that `path` is or contains, or None."""
    candidates = (path, *(path / name for name in FOLDERS))
    return next((place for place in candidates if _find_file(place, FILES["train"][0]) is not None), None)


def read(folder: Path, split: Split) -> Iterator[Chunk]:
    """Yield the images of one split of a folder that `locate` found, in chunks, in their order.

    Raises:
        BadInput: a file is missing, truncated, damaged or not MNIST; the message names the file and position.
    """
    image_file, label_file = FILES[split]
    with _open(folder, image_file) as images, _open(folder, label_file) as labels:
        count, *shape = _read_header(images, 3)
        if tuple(shape) != IMAGE_SHAPE[1:]:
            raise BadInput(f"{images.path}: images of {shape[0]} x {shape[1]}: expected 28 x 28")
        (labelled,) = _read_header(labels, 1)
        if labelled != count:
            raise BadInput(f"{labels.path} has {labelled} labels for the {count} images of {images.path}")
        for first in range(0, count, _IMAGES_PER_CHUNK):
            batch_size = min(_IMAGES_PER_CHUNK, count - first)
            classes = _read_values(labels, batch_size)
            wrong = np.flatnonzero(classes >= CLASSES)
            if wrong.size:
                raise BadInput(
                    f"{labels.path}: the label at {first + wrong[0]} is {classes[wrong[0]]}: "
                    f"expected 0 to {CLASSES - 1}"
                )
            pixels = _read_values(images, batch_size * 28 * 28)
            yield Chunk(first, pixels.reshape(batch_size, *IMAGE_SHAPE), classes)
        for file in (images, labels):
            if _read(file, 1):
                raise BadInput(f"{file.path} has more than the {count} entries of its header")


class _Idx(NamedTuple):
    path: Path
    content: IO[bytes] | gzip.GzipFile


@contextmanager
def _open(folder: Path, name: str) -> Iterator[_Idx]:
    path = _find_file(folder, name)
    if path is None:
        raise BadInput(f"{name} not found in {folder}; {HINT}")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as content:
            yield _Idx(path, content)
    except OSError as error:
        raise _read_error(path, error) from error


def _find_file(folder: Path, name: str) -> Path | None:
    try:
        return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    except OSError:
        return None


def _read_header(file: _Idx, axes: int) -> tuple[int, ...]:
    """Return the length of each axis."""
    zeros, kind, found, *shape = struct.unpack(f">HBB{axes}I", _read_exactly(file, 4 + 4 * axes))
    if (zeros, kind, found) != (0, _UNSIGNED_BYTES, axes):
        raise BadInput(f"{file.path} is not an IDX file of bytes with {axes} axes; {HINT}")
    if not 0 < shape[0] <= _MAX_IMAGES:
        raise BadInput(f"{file.path}: {shape[0]} entries in its header: expected 1 to {_MAX_IMAGES:,}")
    return tuple(shape)


def _read_values(file: _Idx, count: int) -> Pixels:
    return np.frombuffer(_read_exactly(file, count), np.uint8)


def _read_exactly(file: _Idx, size: int) -> bytes:
    content = _read(file, size)
    if len(content) < size:
        raise BadInput(f"{file.path} is truncated: {file.content.tell()} bytes; {HINT}")
    return content


def _read(file: _Idx, size: int) -> bytes:
    """Read at most `size` bytes, which the header announced, however much the archive unpacks to."""
    try:
        return file.content.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{file.path} is truncated, damaged or not a gzip file ({error}); {HINT}") from error
    except OSError as error:  # caught here, where the file is known
        raise _read_error(file.path, error) from error


def _read_error(path: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot read {path}: {error.strerror or error}; {HINT}")
