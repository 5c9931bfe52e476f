"""One epoch of batches as the engines take them, in a file that every worker maps.

Gathering, conversion and scaling happen here, once, so that none of it is inside a training step.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import numpy as np
import platformdirs
from numpy.typing import NDArray

from polybench.data import Dataset
from polybench.data.augmentation import Decisions, augment
from polybench.data.batches import Order, order_sha256
from polybench.data.disk import room
from polybench.data.file_cache import FileCache, key_of, sampled_sha256

_KEPT_BYTES = 3 << 30
"""Of epochs that are kept between studies: one of CIFAR-10 has 614 MB."""

_LARGEST_BUFFER = 2 << 20
"""Bytes converted at a time: they stay in the cache, and the parent stays small."""


class EpochFile(msgspec.Struct, frozen=True):
    """Images (steps, batch, *image_shape) and int64 labels (steps, batch), each a file in C order.

    Images, or sequences of features, are float32, sequences of tokens int32.
    """

    images_path: str
    labels_path: str
    steps: int
    batch_size: int
    image_shape: tuple[int, ...]
    dtype: Literal["float32", "int32"] = "float32"

    @property
    def bytes(self) -> int:
        """The size of both files."""
        return self.steps * self.batch_size * (4 * math.prod(self.image_shape) + 8)


def write_epoch(
    dataset: Dataset,
    order: Order,
    folder: Path,
    limit: int | None = None,
    decisions: Decisions | None = None,
) -> EpochFile:
    """Write the batches of `order`, (steps, batch) indices, pixels as float32 in 0..1 (value / 255).

    Tokens stay what they are.

    Args:
        dataset: where the images are.
        order: what `epoch_order` gives.
        folder: gets `images.f32`, or `tokens.i32`, and `labels.i64`; 614 MB for 50,000 images.
        limit: write only the first `limit` steps.
        decisions: (steps, batch, 3), to vary the images by.

    Raises:
        BadInput: the folder has no room for the files, or cannot be written.
    """
    order = order[:limit]
    epoch = _in_folder(folder, order, dataset)
    images_path, labels_path = Path(epoch.images_path), Path(epoch.labels_path)
    with room(folder, epoch.bytes):
        for path in (images_path, labels_path):
            path.unlink(missing_ok=True)  # a worker may still map an earlier one
        with images_path.open("xb", buffering=0) as file:
            flat = None if decisions is None else decisions[: len(order)].reshape(-1, 3)
            _write_images(dataset, order.reshape(-1), flat, file)
        labels_path.write_bytes(dataset.labels[order].astype(np.int64).tobytes())
    return epoch


def kept_epoch(dataset: Dataset, order: Order, folder: Path) -> EpochFile:
    """What `write_epoch` writes, from an earlier study that had the same data and order, if there was one.

    Raises:
        BadInput: as `write_epoch` does.
    """

    def write() -> str:
        write_epoch(dataset, order, folder)
        return f"{dataset.source}, in batches of {order.shape[1]}"

    cache = FileCache(platformdirs.user_cache_path("polybench") / "epochs", str, _KEPT_BYTES, sampled_sha256)
    cache.fetch(
        key_of(
            dataset.sha256,
            str(dataset.images.dtype),
            dataset.images.shape,
            order_sha256(order),
            order.shape,
            Path(__file__),
        ),
        folder,
        write,
    )
    return _in_folder(folder, order, dataset)


def _in_folder(folder: Path, order: Order, dataset: Dataset) -> EpochFile:
    steps, batch_size = order.shape
    tokens = dataset.images.dtype == np.int32
    images, labels = folder / ("tokens.i32" if tokens else "images.f32"), folder / "labels.i64"
    shape = dataset.images.shape[1:]
    return EpochFile(str(images), str(labels), steps, batch_size, shape, "int32" if tokens else "float32")


def open_epoch(epoch: EpochFile) -> tuple[NDArray[np.float32] | NDArray[np.int32], NDArray[np.int64]]:
    """Images (steps, batch, *image_shape) and labels (steps, batch), read-only, memory-mapped.

    All pages are mapped on return, where the system can do that, so that a timed step has no page fault.
    """
    shape = (epoch.steps, epoch.batch_size)
    images = np.frombuffer(_map(epoch.images_path), epoch.dtype).reshape(*shape, *epoch.image_shape)
    labels = np.frombuffer(_map(epoch.labels_path), np.int64).reshape(shape)
    return images, labels


def _write_images(
    dataset: Dataset, order: NDArray[np.int64], decisions: Decisions | None, file: BinaryIO
) -> None:
    shape = dataset.images.shape[1:]
    count = max(1, _LARGEST_BUFFER // (4 * math.prod(shape)))
    tokens = dataset.images.dtype == np.int32
    buffer = np.empty((count, *shape), np.int32 if tokens else np.float32)
    for start in range(0, len(order), count):
        indices = order[start : start + count]
        pixels = buffer[: len(indices)]
        images = dataset.images[indices]
        if decisions is not None:
            images = augment(images.astype(np.uint8, copy=False), decisions[start : start + count])
        if tokens:
            pixels[:] = images
        else:
            np.divide(images, np.float32(255), out=pixels, dtype=np.float32)
        left = pixels.reshape(-1).view(np.uint8).data
        while left:
            left = left[file.write(left) :]


def _map(path: str) -> mmap.mmap:
    with Path(path).open("rb") as file:
        if hasattr(mmap, "MAP_POPULATE"):
            return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
