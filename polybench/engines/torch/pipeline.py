"""PyTorch's own input pipeline: a data set of augmented images, and a `DataLoader` with worker processes."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from polybench.data.batches import MAX_CROP_OFFSET
from polybench.engines.base import Array, PipelineInput
from polybench.engines.shared.batches import Batch, BufferedBatches

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def open_batches(source: PipelineInput, device: Any, dtype: Any, memory_format: Any) -> BufferedBatches:
    """Open a DataLoader for batches on the device; its workers run until it is garbage-collected."""
    steps, batch_size = source.order.shape
    sampler = IndexSampler(steps, batch_size)
    loader = DataLoader(
        AugmentedImages(source),
        batch_sampler=sampler,
        num_workers=source.workers,
        persistent_workers=source.workers > 0,
        worker_init_fn=_die_with_trainer,
        pin_memory=device.type == "cuda",
    )

    def start(first: int) -> Iterator[Batch]:
        sampler.first = first
        for images, labels in loader:
            yield (
                images.to(device, dtype, memory_format=memory_format, non_blocking=True),
                labels.to(device, non_blocking=True),
            )

    return BufferedBatches(steps, start)


def _die_with_trainer(_: int) -> None:
    """Kill this worker as soon as the training process dies; PyTorch checks only every five seconds."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class AugmentedImages:
    """Map-style data set of augmented float32 images (channels, height, width) in 0..1, and their labels.

    An index is step x batch size + index in the batch. NumPy is faster here: for 32 x 32 images, PyTorch's
    operators took 75 us per image, because of an overhead of 1 us or more for each operator; NumPy took 7 us.
    """

    def __init__(self, source: PipelineInput) -> None:
        self._images, self._labels = source.images, source.labels
        self._order = source.order.reshape(-1)
        self._augmentations = None if source.augmentations is None else source.augmentations.reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> tuple[Array, int]:
        image_index = self._order[index]
        image = self._images[image_index]
        if self._augmentations is not None:
            image = augment(image, *self._augmentations[index].tolist())
        return image.astype(np.float32) / np.float32(255), int(self._labels[image_index])


def augment(image: Array, flip: int, dy: int, dx: int) -> Array:
    """Flip an image, pad it with zeros and crop it to its size."""
    channels, height, width = image.shape
    border = MAX_CROP_OFFSET
    padded = np.zeros((channels, height + 2 * border, width + 2 * border), np.uint8)
    padded[:, border : border + height, border : border + width] = image[..., ::-1] if flip else image
    top, left = border + dy, border + dx
    return padded[:, top : top + height, left : left + width]


class IndexSampler:
    """Batch sampler that yields the indices of batch `first`, which can be set, and of all later batches."""

    def __init__(self, steps: int, batch_size: int) -> None:
        self.first = 0
        self._steps, self._batch_size = steps, batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.first, self._steps):
            yield list(range(step * self._batch_size, (step + 1) * self._batch_size))

    def __len__(self) -> int:
        return self._steps - self.first
