"""Files that input pipelines read: all training images, the order of the batches, and the augmentations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.data import Dataset
from polybench.data.augmentation import Augmentations
from polybench.data.batches import Order
from polybench.data.disk import check_free_space


class ImageFiles(NamedTuple):
    """`.npy` files of uint8 images (N, channels, height, width) and int64 labels (N,)."""

    images: Path
    labels: Path


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


def write_images(dataset: Dataset, folder: Path) -> ImageFiles:
    """Write `images.npy` and `labels.npy`, which all pipelines share.

    Raises:
        BadInput: the folder has too little space for the files, or is not writable.
    """
    files = ImageFiles(folder / "images.npy", folder / "labels.npy")
    with check_free_space(folder, dataset.images.nbytes + 8 * len(dataset.labels)):
        np.save(files.images, dataset.images)
        np.save(files.labels, dataset.labels.astype(np.int64))
    return files


def write_pipeline_files(
    files: ImageFiles,
    order: Order,
    augmentations: Augmentations | None,
    folder: Path,
    *,
    loader_workers: int,
    steps_per_epoch: int,
) -> PipelineFiles:
    """Write `order.npy` and, with augmentation, `augmentations.npy` for these images.

    Raises:
        BadInput: the folder has too little space for the files, or is not writable.
    """
    order_path, augmentations_path = folder / "order.npy", folder / "augmentations.npy"
    with check_free_space(folder, 2 * order.nbytes):
        np.save(order_path, order)
        if augmentations is not None:
            np.save(augmentations_path, augmentations)
    return PipelineFiles(
        str(files.images),
        str(files.labels),
        str(order_path),
        None if augmentations is None else str(augmentations_path),
        loader_workers,
        steps_per_epoch,
        files.images.stat().st_size,
    )


def open_mapped(path: str) -> NDArray[Any]:
    """Map an array of one of these files, read-only."""
    array: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return array
