"""MNIST as its authors publish it: four IDX files, plain or gzipped.

`train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, `t10k-...` for the test images. An IDX file has a
magic number and the length of each axis as big-endian 32-bit integers, then a byte per value. The official
files have 60,000 and 10,000 images; smaller files are accepted. http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polybench.data.array_chunks import Chunk, Pixels, Split
from polybench.data.disk import is_file, open_regular_file
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
_UNSIGNED_BYTES = 8


def locate(path: Path) -> Path | None:
    """Return the folder with the files that `path` is or contains, or None."""
    candidates = (path, *(path / name for name in FOLDERS))
    return next((place for place in candidates if _find_file(place, FILES["train"][0]) is not None), None)


def read(folder: Path, split: Split) -> Iterator[Chunk]:
    """Yield the images of one split of a folder that `locate` found, in their order.

    Raises:
        BadInput: a file is missing, truncated, damaged or not MNIST; the message names the file and position.
    """
    image_file, label_file = (_find_file(folder, name) or folder / name for name in FILES[split])
    images, labels = _read_idx(image_file, IMAGE_SHAPE[1:]), _read_idx(label_file, ())
    if len(labels) != len(images):
        raise BadInput(f"{label_file} has {len(labels)} labels for the {len(images)} images of {image_file}")
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise BadInput(f"{label_file}: the label at {wrong[0]} is {labels[wrong[0]]}: expected 0 to {CLASSES - 1}")
    yield Chunk(0, images.reshape(-1, *IMAGE_SHAPE), labels)


def _find_file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if is_file(path)), None)


def _read_idx(path: Path, entry_shape: tuple[int, ...]) -> Pixels:
    """Return the entries of a file; reads no more than its header announces, however much it unpacks to."""
    axes = 1 + len(entry_shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open_regular_file(path) as file:
            header = file.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes:
                raise BadInput(f"{path} is truncated: {len(header)} bytes; {HINT}")
            zeros, kind, found, count, *shape = struct.unpack(f">HBB{axes}I", header)
            if (zeros, kind, found) != (0, _UNSIGNED_BYTES, axes):
                raise BadInput(f"{path} is not an IDX file of bytes with {axes} axes; {HINT}")
            if tuple(shape) != entry_shape:
                raise BadInput(f"{path}: images of {shape[0]} x {shape[1]}: expected 28 x 28")
            if not 0 < count <= _MAX_IMAGES:
                raise BadInput(f"{path}: {count} entries in its header: expected 1 to {_MAX_IMAGES:,}")
            size = count * math.prod(entry_shape)
            content = file.read(size + 1)
    except FileNotFoundError:
        raise BadInput(f"{path.name} not found in {path.parent}; {HINT}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path} is truncated, damaged or not a gzip file ({error}); {HINT}") from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}; {HINT}") from error
    if len(content) < size:
        raise BadInput(f"{path} is truncated: {len(header) + len(content)} bytes; {HINT}")
    if len(content) > size:
        raise BadInput(f"{path} has more than the {count} entries of its header")
    return np.frombuffer(content, np.uint8).reshape(count, *entry_shape)
