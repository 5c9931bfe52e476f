"""Batches drawn one after the other from an input pipeline, as a sequence that knows how long it waited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

Batch = tuple[Any, Any]
"""Images and labels, as the engine trains on them."""


class DrawnBatches:
    """Reads like a list of batches, made for reading it in order.

    The batch that was read last is kept, the next one is drawn, and any other starts the pipeline anew.
    `waited` is the seconds that reading took so far: what the training waited for its data.

    Args:
        steps: how many batches there are.
        start: makes the pipeline that begins with this batch.
    """

    def __init__(self, steps: int, start: Callable[[int], Iterator[Batch]]) -> None:
        self.waited = 0.0
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
        self.waited += perf_counter() - begin
        self._last = step
        return self._batch
