"""Reading batches from a pipeline: when it is started, and what counts as waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator

from polybench.engines.support.drawn_batches import Batch, DrawnBatches


class Started:
    """A pipeline that writes down where it was started."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def __call__(self, first: int) -> Iterator[Batch]:
        self.at.append(first)
        for step in range(first, 5):
            yield step, -step


def test_reading_in_order_starts_once_and_a_batch_can_be_read_again() -> None:
    started = Started()
    batches = DrawnBatches(5, started)
    assert [batches[step] for step in (0, 0, 1, 1, 2)] == [(0, 0), (0, 0), (1, -1), (1, -1), (2, -2)]
    assert started.at == [0]
    assert len(batches) == 5


def test_every_other_order_starts_anew() -> None:
    started = Started()
    batches = DrawnBatches(5, started)
    assert [batches[step][0] for step in (0, 1, 0, 1, 3, 4, 0)] == [0, 1, 0, 1, 3, 4, 0]
    assert started.at == [0, 0, 3, 0]


def test_only_reading_is_waiting() -> None:
    def slow(first: int) -> Iterator[Batch]:
        while True:
            time.sleep(0.02)
            yield first, first

    batches = DrawnBatches(5, slow)
    for step in range(3):
        batches[step]
    waited = batches.waited
    assert waited >= 3 * 0.02
    time.sleep(0.02)
    assert batches[2] == (0, 0)
    assert batches.waited == waited
