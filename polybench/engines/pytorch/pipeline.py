"""PyTorch's own input pipeline: a data set of prepared images, and a `DataLoader` with worker processes."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np

from polybench.core.spec import LARGEST_SHIFT
from polybench.engines.base import Array, Stream
from polybench.engines.support.drawn_batches import Batch, DrawnBatches

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def draw_from(stream: Stream, device: Any, dtype: Any, memory_format: Any) -> DrawnBatches:
    """The stream's batches on the device, from worker processes that live until they are garbage."""
    from torch.utils.data import DataLoader

    steps, batch_size = stream.order.shape
    places = Places(steps, batch_size)
    loader = DataLoader(
        Augmented(stream),
        batch_sampler=places,
        num_workers=stream.workers,
        persistent_workers=stream.workers > 0,
        worker_init_fn=_die_with_trainer,
        pin_memory=device.type == "cuda",
    )

    def start(first: int) -> Iterator[Batch]:
        places.first = first
        for images, labels in loader:
            yield (
                images.to(device, dtype, memory_format=memory_format, non_blocking=True),
                labels.to(device, non_blocking=True),
            )

    return DrawnBatches(steps, start)


def _die_with_trainer(_: int) -> None:
    """PyTorch's own watch sees every five seconds whether the process that trains is there."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Augmented:
    """A map-style data set: float32 images (channels, height, width) in 0..1, varied, and their labels.

    An index is a place in the stream: step x batch size + place in the batch. NumPy does the work: on images
    of 32 x 32, with a microsecond or more for each operator, PyTorch's own took 75 us an image, and this 7.
    """

    def __init__(self, stream: Stream) -> None:
        self._images, self._labels = stream.images, stream.labels
        self._order = stream.order.reshape(-1)
        self._decisions = None if stream.decisions is None else stream.decisions.reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> tuple[Array, int]:
        index = self._order[place]
        image = self._images[index]
        if self._decisions is not None:
            image = varied(image, *self._decisions[place].tolist())
        return image.astype(np.float32) / np.float32(255), int(self._labels[index])


def varied(image: Array, flip: int, dy: int, dx: int) -> Array:
    """The flipped image, padded with zeros and cropped to its own size."""
    channels, height, width = image.shape
    border = LARGEST_SHIFT
    padded = np.zeros((channels, height + 2 * border, width + 2 * border), np.uint8)
    padded[:, border : border + height, border : border + width] = image[..., ::-1] if flip else image
    top, left = border + dy, border + dx
    return padded[:, top : top + height, left : left + width]


class Places:
    """A batch sampler: the places of batch `first`, which can be set, then of each that follows."""

    def __init__(self, steps: int, batch_size: int) -> None:
        self.first = 0
        self._steps, self._batch_size = steps, batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.first, self._steps):
            yield list(range(step * self._batch_size, (step + 1) * self._batch_size))

    def __len__(self) -> int:
        return self._steps - self.first
