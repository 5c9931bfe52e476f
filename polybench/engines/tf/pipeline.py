"""TensorFlow's own input pipeline: `tf.data` with vectorized mapping, as its performance guide recommends.

See https://www.tensorflow.org/guide/data_performance#vectorizing_mapping. Mapping single 32 x 32 images took
ten times as long, because of TensorFlow's overhead for each operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from polybench.data.batches import MAX_CROP_OFFSET
from polybench.engines.base import PipelineInput
from polybench.engines.shared.batches import Batch, BufferedBatches


class Pipeline:
    """`tf.data` pipeline: images (batch, height, width, channels) of `dtype` in 0..1, and labels."""

    def __init__(self, source: PipelineInput, dtype: str) -> None:
        self._source, self._dtype = source, dtype
        with tf.device("/CPU:0"):
            self._images = tf.constant(np.ascontiguousarray(source.images.transpose(0, 2, 3, 1)))
            self._labels = tf.constant(source.labels)
        augmentations = () if source.augmentations is None else (source.augmentations.astype(np.int32),)
        self._indices = tf.data.Dataset.from_tensor_slices((source.order, *augmentations))

    def dataset(self, first: int, n: int = -1) -> Any:
        """Return batches `first`, `first` + 1, ...: `n` of them, or all."""
        workers, indices = self._source.workers, self._indices.skip(first).take(n)
        dataset = (
            indices.map(self._batch, num_parallel_calls=workers, deterministic=True).prefetch(workers)
            if workers
            else indices.map(self._batch)
        )
        options = tf.data.Options()
        options.threading.private_threadpool_size = max(1, workers)
        # No background work other than that of `workers`.
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return dataset.with_options(options)

    def batches(self, device: str) -> BufferedBatches:
        """Return the batches on the device, in order."""

        def start(first: int) -> Iterator[Batch]:
            return (to_device(*batch) for batch in self.dataset(first))

        def to_device(images: Any, labels: Any) -> Batch:
            with tf.device(device):
                return tf.identity(images), tf.identity(labels)

        return BufferedBatches(len(self._source.order), start)

    def _batch(self, order: Any, augmentations: Any = None) -> Batch:
        images = tf.gather(self._images, order)
        if augmentations is not None:
            images = augment(images, augmentations)
        # Canonical pixels are float32, so the division is not in `dtype`.
        pixels = tf.cast(tf.cast(images, tf.float32) / 255.0, self._dtype)
        return pixels, tf.gather(self._labels, order)


def augment(images: Any, augmentations: Any) -> Any:
    """Pad images (batch, height, width, channels) with zeros, flip and crop them in a single gather."""
    border = MAX_CROP_OFFSET
    _, height, width, channels = images.shape
    padded = tf.pad(images, [[0, 0], [border, border], [border, border], [0, 0]])
    flip, dy, dx = (augmentations[:, column, None] for column in range(3))
    rows = tf.range(height) + dy
    columns = tf.range(width) + dx
    columns = tf.where(flip > 0, width - 1 - columns, columns)
    indices = (rows + border)[:, :, None] * (width + 2 * border) + (columns + border)[:, None, :]
    pixels = tf.reshape(padded, [tf.shape(images)[0], -1, channels])
    return tf.gather(pixels, indices, axis=1, batch_dims=1)
