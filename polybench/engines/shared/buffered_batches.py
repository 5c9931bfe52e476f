"""Sequence of batches read from an input pipeline, which measures the time spent waiting for data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

Batch = tuple[Any, Any]
"""Images and labels in the engine's own types."""


class BufferedBatches:
    """List-like view of a pipeline's batches, optimized for reading in order.

    The last batch is buffered. Reading the next one advances the pipeline; reading any other restarts it.

    Attributes:
        wait_seconds: total time spent reading, which is the time that training waits for data.

    Args:
        steps: number of batches.
        start: function that starts the pipeline at a given batch.
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
