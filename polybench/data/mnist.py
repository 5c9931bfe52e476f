"""MNIST as its authors publish it: four IDX files, as they are or with gzip around them.

`train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, `t10k-...` for the test images. An IDX file begins
with its magic number and the length of each axis, big-endian 32 bits; a byte for each value follows. The
official files have 60,000 and 10,000 images; fewer are read too. http://yann.lecun.com/exdb/mnist/
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

from polybench.core.errors import BadInput
from polybench.data.chunks import Chunk, Pixels, Split

IMAGE_SHAPE = (1, 28, 28)
CLASSES = 10

FILES: dict[Split, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
FOLDERS = ("mnist", "MNIST/raw")
"""Below a folder of data sets; the second is torchvision's."""
REMEDY = f"MNIST is {', '.join(name for files in FILES.values() for name in files)}, each with or without .gz"

_MOST_IMAGES = 150_000
"""More than any file has that is called so; a header that says more is taken for damage."""
_AT_ONCE = 1000
_UNSIGNED_BYTES = 8


def locate(path: Path) -> Path | None:
    """The folder with the files, that `path` is or contains; None if there is none."""
    places = (path, *(path / name for name in FOLDERS))
    return next((place for place in places if _file(place, FILES["train"][0]) is not None), None)


def read(folder: Path, split: Split) -> Iterator[Chunk]:
    """The images of one split, in chunks, in their order.

    Args:
        folder: what `locate` found.
        split: "train" or "test".

    Raises:
        BadInput: a file is missing, truncated, damaged or no MNIST; the message names it, and the place.
    """
    image_file, label_file = FILES[split]
    with _opened(folder, image_file) as images, _opened(folder, label_file) as labels:
        count, *shape = _header(images, 3)
        if tuple(shape) != IMAGE_SHAPE[1:]:
            raise BadInput(f"{images.path}: images of {shape[0]} x {shape[1]}, those of MNIST are 28 x 28")
        (labelled,) = _header(labels, 1)
        if labelled != count:
            raise BadInput(f"{labels.path} has {labelled} labels for the {count} images of {images.path}")
        for first in range(0, count, _AT_ONCE):
            some = min(_AT_ONCE, count - first)
            classes = _values(labels, some)
            wrong = np.flatnonzero(classes >= CLASSES)
            if wrong.size:
                raise BadInput(
                    f"{labels.path}: the label at {first + wrong[0]} is {classes[wrong[0]]}, "
                    f"labels are 0 to {CLASSES - 1}"
                )
            pixels = _values(images, some * 28 * 28)
            yield Chunk(first, pixels.reshape(some, *IMAGE_SHAPE), classes)
        for file in (images, labels):
            if _read(file, 1):
                raise BadInput(f"{file.path} goes on behind the {count} entries that its header says")


class _Idx(NamedTuple):
    path: Path
    content: IO[bytes] | gzip.GzipFile


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[_Idx]:
    path = _file(folder, name)
    if path is None:
        raise BadInput(f"there is no {name} in {folder}; {REMEDY}")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as content:
            yield _Idx(path, content)
    except OSError as error:
        raise _unreadable(path, error) from error


def _file(folder: Path, name: str) -> Path | None:
    try:
        return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    except OSError:
        return None


def _header(file: _Idx, axes: int) -> tuple[int, ...]:
    """The length of each axis."""
    zeros, kind, found, *shape = struct.unpack(f">HBB{axes}I", _exactly(file, 4 + 4 * axes))
    if (zeros, kind, found) != (0, _UNSIGNED_BYTES, axes):
        raise BadInput(f"{file.path} is no IDX file of bytes with {axes} axes; {REMEDY}")
    if not 0 < shape[0] <= _MOST_IMAGES:
        raise BadInput(f"{file.path}: its header says {shape[0]} entries; 1 to {_MOST_IMAGES:,} are read")
    return tuple(shape)


def _values(file: _Idx, count: int) -> Pixels:
    return np.frombuffer(_exactly(file, count), np.uint8)


def _exactly(file: _Idx, size: int) -> bytes:
    content = _read(file, size)
    if len(content) < size:
        raise BadInput(f"{file.path} is truncated: {file.content.tell()} bytes; {REMEDY}")
    return content


def _read(file: _Idx, size: int) -> bytes:
    """No more than this: what an archive unpacks to, its header must have said."""
    try:
        return file.content.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{file.path} is truncated, damaged or no gzip file ({error}); {REMEDY}") from error
    except OSError as error:  # here, where it is known which of the two files it is
        raise _unreadable(file.path, error) from error


def _unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot read {path}: {error.strerror or error}; {REMEDY}")
