"""Input pipeline for JAX, which has none of its own: NumPy prepares batches in prefetching threads.

JAX's documentation recommends `tf.data`, PyTorch's DataLoader and Grain. For images in memory, a prefetching
iterator over NumPy arrays is enough. NumPy releases Python's lock while it copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

import jax
import numpy as np

from polybench.data.batches import MAX_CROP_OFFSET
from polybench.engines.base import Array, PipelineInput
from polybench.engines.shared.batches import Batch, BufferedBatches

PREFETCH_PER_WORKER = 2
"""Batches per worker that are finished or in progress; the same as in PyTorch's DataLoader."""


class Pipeline:
    """Batches on a device: images of `dtype` in 0..1, labels int32."""

    def __init__(self, source: PipelineInput, device: Any, dtype: str) -> None:
        self._source, self._device, self._dtype = source, device, dtype
        self._threads = ThreadPoolExecutor(source.workers) if source.workers else None
        self._pending: deque[Future[Batch]] = deque()

    def batches(self) -> BufferedBatches:
        """Return the batches in order."""
        return BufferedBatches(len(self._source.order), self._start)

    def wait_until_idle(self) -> None:
        """Return when all prefetched batches are finished."""
        wait(self._pending)

    def close(self) -> None:
        """Stop the threads."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _start(self, first: int) -> Iterator[Batch]:
        steps = iter(range(first, len(self._source.order)))
        return map(self._batch, steps) if self._threads is None else self._prefetch(self._threads, steps)

    def _prefetch(self, threads: ThreadPoolExecutor, steps: Iterator[int]) -> Iterator[Batch]:
        for outdated in self._pending:  # prefetched before the restart
            outdated.cancel()
        self._pending = deque(
            threads.submit(self._batch, step) for step in islice(steps, PREFETCH_PER_WORKER * self._source.workers)
        )
        while self._pending:
            batch = self._pending.popleft().result()
            self._pending.extend(threads.submit(self._batch, step) for step in islice(steps, 1))
            yield batch

    def _batch(self, step: int) -> Batch:
        indices = self._source.order[step]
        images, labels = self._source.images[indices], self._source.labels[indices]
        if self._source.augmentations is not None:
            images = augment(images, self._source.augmentations[step])
        pixels = images.astype(np.float32) / np.float32(255)
        batch: Batch = jax.device_put((pixels.astype(self._dtype), labels.astype(np.int32)), self._device)
        return batch


def augment(images: Array, augmentations: Array) -> Array:
    """Flip images (batch, channels, height, width), pad them with zeros and crop them to their size."""
    border, (height, width) = MAX_CROP_OFFSET, images.shape[2:]
    flip, dy, dx = augmentations.astype(np.intp).T
    flipped = np.where(flip[:, None, None, None], images[..., ::-1], images)
    padded = np.pad(flipped, [(0, 0), (0, 0), (border, border), (border, border)])
    # (batch, channels, top, left, height, width): a view of every crop.
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    selected: Array = crops[np.arange(len(images)), :, border + dy, border + dx]
    return selected
