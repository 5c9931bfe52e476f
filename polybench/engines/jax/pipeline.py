"""An input pipeline for JAX, which has none of its own: NumPy prepares batches in threads that run ahead.

JAX's documentation sends its users to `tf.data`, PyTorch's DataLoader and Grain. Where the images are in
memory, a prefetching iterator over NumPy arrays does it. NumPy lets go of Python's lock while it copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

import numpy as np

from polybench.core.spec import LARGEST_SHIFT
from polybench.engines.base import Array, Stream
from polybench.engines.support.drawn_batches import Batch, DrawnBatches

AHEAD = 2
"""Batches a worker that are ready or in the making; as many as a DataLoader of PyTorch has."""


class Pipeline:
    """The stream's batches on a device: images of `dtype` in 0..1, labels int32."""

    def __init__(self, stream: Stream, device: Any, dtype: str) -> None:
        self._stream, self._device, self._dtype = stream, device, dtype
        self._threads = ThreadPoolExecutor(stream.workers) if stream.workers else None
        self._ahead: deque[Future[Batch]] = deque()

    def draw(self) -> DrawnBatches:
        """The batches, one after the other."""
        return DrawnBatches(len(self._stream.order), self._start)

    def wait_until_idle(self) -> None:
        """Return when all that run ahead are done."""
        wait(self._ahead)

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _start(self, first: int) -> Iterator[Batch]:
        steps = iter(range(first, len(self._stream.order)))
        return map(self._batch, steps) if self._threads is None else self._prefetched(self._threads, steps)

    def _prefetched(self, threads: ThreadPoolExecutor, steps: Iterator[int]) -> Iterator[Batch]:
        for unwanted in self._ahead:  # of where the stream was read before
            unwanted.cancel()
        self._ahead = deque(
            threads.submit(self._batch, step) for step in islice(steps, AHEAD * self._stream.workers)
        )
        while self._ahead:
            batch = self._ahead.popleft().result()
            self._ahead.extend(threads.submit(self._batch, step) for step in islice(steps, 1))
            yield batch

    def _batch(self, step: int) -> Batch:
        import jax

        chosen = self._stream.order[step]
        images, labels = self._stream.images[chosen], self._stream.labels[chosen]
        if self._stream.decisions is not None:
            images = varied(images, self._stream.decisions[step])
        pixels = images.astype(np.float32) / np.float32(255)
        batch: Batch = jax.device_put((pixels.astype(self._dtype), labels.astype(np.int32)), self._device)
        return batch


def varied(images: Array, decisions: Array) -> Array:
    """Images (batch, channels, height, width), flipped, padded with zeros and cropped to their own size."""
    border, (height, width) = LARGEST_SHIFT, images.shape[2:]
    flip, dy, dx = decisions.astype(np.intp).T
    flipped = np.where(flip[:, None, None, None], images[..., ::-1], images)
    padded = np.pad(flipped, [(0, 0), (0, 0), (border, border), (border, border)])
    # (batch, channels, top, left, height, width): every crop, none of them copied.
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    chosen: Array = crops[np.arange(len(images)), :, border + dy, border + dx]
    return chosen
