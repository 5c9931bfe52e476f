"""What input pipelines read: all training images as bytes, the order of the batches, and how to vary them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.data import Dataset
from polybench.data.augmentation import Decisions
from polybench.data.batches import Order
from polybench.data.disk import room


class Images(NamedTuple):
    """`.npy` files of uint8 images (N, channels, height, width) and int64 labels (N,)."""

    images: Path
    labels: Path


class StreamFile(msgspec.Struct, frozen=True):
    """`.npy` files: the images and labels; (steps, batch) int64 indices; (steps, batch, 3) int8 decisions.

    `decisions_path` is null without augmentation. `steps_in_epoch` of the steps are an epoch. `bytes` is the
    size of the images.
    """

    images_path: str
    labels_path: str
    order_path: str
    decisions_path: str | None
    workers: int
    steps_in_epoch: int
    bytes: int


def write_images(dataset: Dataset, folder: Path) -> Images:
    """Write `images.npy` and `labels.npy`, once for all streams.

    Raises:
        BadInput: the folder has no room for the files, or cannot be written.
    """
    files = Images(folder / "images.npy", folder / "labels.npy")
    with room(folder, dataset.images.nbytes + 8 * len(dataset.labels)):
        np.save(files.images, dataset.images)
        np.save(files.labels, dataset.labels.astype(np.int64))
    return files


def write_stream(
    files: Images,
    order: Order,
    decisions: Decisions | None,
    folder: Path,
    *,
    workers: int,
    steps_in_epoch: int,
) -> StreamFile:
    """Write `order.npy` and, with augmentation, `decisions.npy`, for these images.

    Raises:
        BadInput: the folder has no room for the files, or cannot be written.
    """
    order_path, decisions_path = folder / "order.npy", folder / "decisions.npy"
    with room(folder, 2 * order.nbytes):
        np.save(order_path, order)
        if decisions is not None:
            np.save(decisions_path, decisions)
    return StreamFile(
        str(files.images),
        str(files.labels),
        str(order_path),
        None if decisions is None else str(decisions_path),
        workers,
        steps_in_epoch,
        files.images.stat().st_size,
    )


def mapped(path: str) -> NDArray[Any]:
    """An array of one of these files, read-only and mapped."""
    array: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return array
