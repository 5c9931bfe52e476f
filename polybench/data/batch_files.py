"""Files that workers map: batches in the engines' input format, and the inputs of pipelines.

Gathering, conversion and scaling happen here, once, so that a training step contains none of it.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
import platformdirs
from numpy.typing import NDArray

from polybench.data import Dataset
from polybench.data.batches import Augmentations, Order, augment, order_sha256
from polybench.data.disk import check_free_space
from polybench.data.file_cache import FileCache, cache_key

_CACHE_BYTES = 3 << 30
"""Size of the cache of epochs; an epoch of CIFAR-10 has 614 MB."""

_BUFFER_BYTES = 2 << 20
"""Bytes converted at a time: they fit in the CPU cache and keep the parent small."""


class EpochFile(msgspec.Struct, frozen=True):
    """Images (steps, batch, *image_shape) and int64 labels (steps, batch, *label_shape), each in a file in C order.

    Images and sequences of features are float32, sequences of tokens are int32.
    """

    images_path: str
    labels_path: str
    steps: int
    batch_size: int
    image_shape: tuple[int, ...]
    dtype: Literal["float32", "int32"] = "float32"
    label_shape: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Size of both files."""
        return self.steps * self.batch_size * (4 * math.prod(self.image_shape) + 8 * math.prod(self.label_shape))


def write_epoch(
    dataset: Dataset,
    order: Order,
    folder: Path,
    max_steps: int | None = None,
    augmentations: Augmentations | None = None,
) -> EpochFile:
    """Write the batches of `order`, with pixels as float32 in 0..1 (value / 255); tokens are not converted.

    `folder` receives `images.f32` or `tokens.i32`, and `labels.i64`; 614 MB for 50,000 images. Only the first
    `max_steps` of the (steps, batch) indices are written. `augmentations` are (steps, batch, 3).

    Raises:
        BadInput: the folder has too little space for the files, or is not writable.
    """
    order = order[:max_steps]
    epoch = _epoch_file(folder, order, dataset)
    images_path, labels_path = Path(epoch.images_path), Path(epoch.labels_path)
    with check_free_space(folder, epoch.bytes):
        for path in (images_path, labels_path):
            path.unlink(missing_ok=True)  # a worker may still map an earlier one
        with images_path.open("xb", buffering=0) as file:
            flat = None if augmentations is None else augmentations[: len(order)].reshape(-1, 3)
            _write_images(dataset, order.reshape(-1), flat, file)
        labels_path.write_bytes(dataset.labels[order].astype(np.int64).tobytes())
    return epoch


def cached_epoch(dataset: Dataset, order: Order, folder: Path) -> EpochFile:
    """Provide the files of `write_epoch`, from the cache if an earlier study had the same data and order."""

    def write() -> str:
        write_epoch(dataset, order, folder)
        return f"{dataset.source}, in batches of {order.shape[1]}"

    cache = FileCache(platformdirs.user_cache_path("polybench") / "epochs", str, _CACHE_BYTES)
    images = str(dataset.images.dtype), dataset.images.shape
    key = cache_key(dataset.sha256, *images, order_sha256(order), order.shape, Path(__file__))
    cache.fetch(key, folder, write)
    return _epoch_file(folder, order, dataset)


def _epoch_file(folder: Path, order: Order, dataset: Dataset) -> EpochFile:
    steps, batch_size = order.shape
    tokens = dataset.images.dtype == np.int32
    images, labels = folder / ("tokens.i32" if tokens else "images.f32"), folder / "labels.i64"
    shape = dataset.images.shape[1:]
    dtype: Literal["float32", "int32"] = "int32" if tokens else "float32"
    return EpochFile(str(images), str(labels), steps, batch_size, shape, dtype, dataset.labels.shape[1:])


def open_epoch(epoch: EpochFile) -> tuple[NDArray[np.float32] | NDArray[np.int32], NDArray[np.int64]]:
    """Return images (steps, batch, *image_shape) and labels (steps, batch, *label_shape), read-only and memory-mapped.

    All pages are already mapped, so that a timed step has no page fault.
    """
    shape = (epoch.steps, epoch.batch_size)
    count = math.prod(shape)  # the files may have more
    images = np.frombuffer(_map_file(epoch.images_path), epoch.dtype, count * math.prod(epoch.image_shape))
    labels = np.frombuffer(_map_file(epoch.labels_path), np.int64, count * math.prod(epoch.label_shape))
    return images.reshape(*shape, *epoch.image_shape), labels.reshape(*shape, *epoch.label_shape)


def _write_images(
    dataset: Dataset, order: NDArray[np.int64], augmentations: Augmentations | None, file: BinaryIO
) -> None:
    shape = dataset.images.shape[1:]
    count = max(1, _BUFFER_BYTES // (4 * math.prod(shape)))
    tokens = dataset.images.dtype == np.int32
    buffer = np.empty((count, *shape), np.int32 if tokens else np.float32)
    for start in range(0, len(order), count):
        indices = order[start : start + count]
        pixels = buffer[: len(indices)]
        images = dataset.images[indices]
        if augmentations is not None:
            images = augment(images.astype(np.uint8, copy=False), augmentations[start : start + count])
        if tokens:
            pixels[:] = images
        else:
            np.divide(images, np.float32(255), out=pixels, dtype=np.float32)
        remaining = pixels.reshape(-1).view(np.uint8).data
        while remaining:
            remaining = remaining[file.write(remaining) :]


def _map_file(path: str) -> mmap.mmap:
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)


class PipelineFiles(msgspec.Struct, frozen=True):
    """`.npy` files: images and labels; (steps, batch) int64 indices; (steps, batch, 3) int8 augmentations.

    `augmentations_path` is null without augmentation. `bytes` is the size of the images.
    """

    images_path: str
    labels_path: str
    order_path: str
    augmentations_path: str | None
    loader_workers: int
    steps_per_epoch: int
    bytes: int


def write_images(dataset: Dataset, folder: Path) -> None:
    """Write `images.npy`, uint8 (N, channels, height, width), and `labels.npy`, int64, which all pipelines share."""
    with check_free_space(folder, dataset.images.nbytes + 8 * len(dataset.labels)):
        np.save(folder / "images.npy", dataset.images)
        np.save(folder / "labels.npy", dataset.labels.astype(np.int64))


def write_pipeline_files(
    images_folder: Path,
    order: Order,
    augmentations: Augmentations | None,
    folder: Path,
    *,
    loader_workers: int,
    steps_per_epoch: int,
) -> PipelineFiles:
    """Write `order.npy` and, with augmentation, `augmentations.npy` for the images of `write_images`."""
    images, order_path, augmentations_path = images_folder / "images.npy", folder / "order.npy", None
    with check_free_space(folder, 2 * order.nbytes):
        np.save(order_path, order)
        if augmentations is not None:
            augmentations_path = str(folder / "augmentations.npy")
            np.save(augmentations_path, augmentations)
    return PipelineFiles(
        str(images),
        str(images.with_name("labels.npy")),
        str(order_path),
        augmentations_path,
        loader_workers,
        steps_per_epoch,
        images.stat().st_size,
    )


def open_mapped(path: str) -> NDArray[Any]:
    """Map an array of one of these files, read-only."""
    array: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return array


def repeat_rows(
    epoch: EpochFile, pipeline: PipelineFiles | None, rows: NDArray[np.int64], folder: Path
) -> tuple[EpochFile, PipelineFiles | None]:
    """Write batches that consist of these rows of each batch to a new folder, and the files of their pipeline."""
    folder.mkdir()
    images, labels = open_epoch(epoch)
    images_path, labels_path = folder / "images", folder / "labels.i64"
    repeated = msgspec.structs.replace(
        epoch, images_path=str(images_path), labels_path=str(labels_path), batch_size=len(rows)
    )
    with check_free_space(folder, repeated.bytes):
        with images_path.open("xb") as file:
            for batch in images:
                file.write(batch[rows].data)
        labels_path.write_bytes(labels[:, rows].tobytes())
    if pipeline is None:
        return repeated, None
    path = pipeline.augmentations_path
    augmentations = None if path is None else open_mapped(path)[:, rows]
    return repeated, write_pipeline_files(
        Path(pipeline.images_path).parent,
        open_mapped(pipeline.order_path)[:, rows],
        augmentations,
        folder,
        loader_workers=pipeline.loader_workers,
        steps_per_epoch=pipeline.steps_per_epoch,
    )
