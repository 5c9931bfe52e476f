"""TensorFlow's own input pipeline: `tf.data`, which maps whole batches, as its guide to performance advises.

https://www.tensorflow.org/guide/data_performance#vectorizing_mapping. One by one, with TensorFlow's cost for
each operator, images of 32 x 32 took ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from polybench.core.spec import LARGEST_SHIFT
from polybench.engines.base import Stream
from polybench.engines.support.drawn_batches import Batch, DrawnBatches


class Pipeline:
    """The stream as `tf.data`: images (batch, height, width, channels) of `dtype` in 0..1, and labels."""

    def __init__(self, stream: Stream, dtype: str) -> None:
        import tensorflow as tf

        self._stream, self._dtype = stream, dtype
        with tf.device("/CPU:0"):
            self._images = tf.constant(np.ascontiguousarray(stream.images.transpose(0, 2, 3, 1)))
            self._labels = tf.constant(stream.labels)
        decisions = () if stream.decisions is None else (stream.decisions.astype(np.int32),)
        self._places = tf.data.Dataset.from_tensor_slices((stream.order, *decisions))

    def dataset(self, first: int, n: int = -1) -> Any:
        """Batches `first`, `first` + 1, ...: `n` of them, or all."""
        import tensorflow as tf

        workers, places = self._stream.workers, self._places.skip(first).take(n)
        dataset = (
            places.map(self._batch, num_parallel_calls=workers, deterministic=True).prefetch(workers)
            if workers
            else places.map(self._batch)
        )
        options = tf.data.Options()
        options.threading.private_threadpool_size = max(1, workers)
        # Nothing else may run in the background than what `workers` says.
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return dataset.with_options(options)

    def draw(self, device: str) -> DrawnBatches:
        """The batches on the device, one after the other."""
        import tensorflow as tf

        def start(first: int) -> Iterator[Batch]:
            return (placed(*batch) for batch in self.dataset(first))

        def placed(images: Any, labels: Any) -> Batch:
            with tf.device(device):
                return tf.identity(images), tf.identity(labels)

        return DrawnBatches(len(self._stream.order), start)

    def _batch(self, order: Any, decisions: Any = None) -> Batch:
        import tensorflow as tf

        images = tf.gather(self._images, order)
        if decisions is not None:
            images = varied(images, decisions)
        # Not divided in `dtype`: the canonical pixels are float32.
        pixels = tf.cast(tf.cast(images, tf.float32) / 255.0, self._dtype)
        return pixels, tf.gather(self._labels, order)


def varied(images: Any, decisions: Any) -> Any:
    """Images (batch, height, width, channels), each padded with zeros, flipped and cropped, in one gather."""
    import tensorflow as tf

    border = LARGEST_SHIFT
    _, height, width, channels = images.shape
    padded = tf.pad(images, [[0, 0], [border, border], [border, border], [0, 0]])
    flip, dy, dx = (decisions[:, column, None] for column in range(3))
    rows = tf.range(height) + dy
    columns = tf.range(width) + dx
    columns = tf.where(flip > 0, width - 1 - columns, columns)
    places = (rows + border)[:, :, None] * (width + 2 * border) + (columns + border)[:, None, :]
    pixels = tf.reshape(padded, [tf.shape(images)[0], -1, channels])
    return tf.gather(pixels, places, axis=1, batch_dims=1)
