"""Batches, dropout masks and learning rates of a training step, as every engine needs them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from polybench.data.batches import repeated_rows
from polybench.engines.base import Array, Weights
from polybench.networks.layers import Dropout, Shape
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

Batch = tuple[Any, Any]
"""Images and labels in the engine's own types."""


def as_dtype(weights: Weights, dtype: str) -> dict[str, Array]:
    """Copy canonical weights to contiguous arrays of `dtype`."""
    return {name: np.array(value, dtype=dtype, order="C") for name, value in weights.items()}


def is_tokens(batch: Array) -> bool:
    """Return True for a batch of tokens: integers, which engines never convert to floating point."""
    return bool(np.issubdtype(batch.dtype, np.integer))


def as_input(batch: Array, dtype: str) -> Array:
    """Copy a batch for a network: pixels and features in `dtype`, tokens unchanged."""
    return np.array(batch, dtype=batch.dtype if is_tokens(batch) else dtype, order="C")


def prefault(batches: Array) -> None:
    """Read one value of every page of a memory-mapped file, so that timed steps have no page faults."""
    page_bytes = 4096
    for batch in batches:  # each batch is contiguous, even as a slice of a larger array
        batch.reshape(-1)[:: max(1, page_bytes // batches.itemsize)].sum()


class BufferedBatches:
    """List-like view of a pipeline's batches, optimized for reading in order.

    The last batch is buffered. Reading the next one advances the pipeline; reading any other restarts it with `start`.
    `wait_seconds` is the total time spent reading, which is the time that training waits for data.
    """

    def __init__(self, steps: int, start: Callable[[int], Iterator[Batch]]) -> None:
        self.wait_seconds = 0.0
        self._steps = steps
        self._start = start
        self._pipeline: Iterator[Batch] = iter(())
        self._last: int | None = None
        self._batch: Batch

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Batch:
        if step == self._last:
            return self._batch
        begin = perf_counter()
        if self._last is None or step != self._last + 1:
            self._pipeline = self._start(step)
        self._batch = next(self._pipeline)
        self.wait_seconds += perf_counter() - begin
        self._last = step
        return self._batch


def dropout_masks(model: Model, batch_size: int, seed: int, step: int) -> dict[str, NDArray[np.float64]]:
    """Generate the masks by which dropout layers multiply their inputs in step `step`, by layer name.

    A mask is (batch_size, *input shape of the layer), canonical layout (channels first): 0 with probability
    `rate`, else 1 / (1 - rate). The engines' own generators differ, so the parity check gives these masks to all
    engines. Timed steps use each engine's own dropout. Large batches repeat masks like the images of the check.
    """
    rows = repeated_rows(batch_size, model.parity_batch_size)
    return {
        layer.name: dropout_mask(layer, (min(batch_size, model.parity_batch_size), *shape), seed, step)[rows]
        for layer, shape in model.activations()
        if isinstance(layer, Dropout)
    }


def dropout_mask(layer: Dropout, shape: Shape, seed: int, step: int) -> NDArray[np.float64]:
    """Generate a layer's mask from the raw bits of its own random stream; u < rate drops, u in [0, 1)."""
    stream = PCG64(SeedSequence([seed, zlib.crc32(layer.name.encode()), step]))
    uniform = (stream.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
    return np.where(uniform < layer.rate, 0.0, 1 / (1 - layer.rate)).reshape(shape)


def scheduled_steps(optimizer: Optimizer, first: int, n: int, set_rate: Callable[[float], None]) -> Iterator[int]:
    """Yield the steps first, first + 1, ..., calling `set_rate` before the first and at each change."""
    for steps, rate in optimizer.constant_rate_segments(first, n):
        set_rate(rate)
        yield from steps
