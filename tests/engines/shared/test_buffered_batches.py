"""Batches read from a pipeline: restarts, and time spent waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator

from polybench.engines.shared.buffered_batches import Batch, BufferedBatches


class RecordedPipeline:
    """Pipeline that records at which batches it was started."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def __call__(self, first: int) -> Iterator[Batch]:
        self.starts.append(first)
        for step in range(first, 5):
            yield step, -step


def test_reading_in_order_and_rereading_a_batch_start_the_pipeline_once() -> None:
    pipeline = RecordedPipeline()
    batches = BufferedBatches(5, pipeline)
    assert [batches[step] for step in (0, 0, 1, 1, 2)] == [(0, 0), (0, 0), (1, -1), (1, -1), (2, -2)]
    assert pipeline.starts == [0]
    assert len(batches) == 5


def test_reading_out_of_order_restarts_the_pipeline() -> None:
    pipeline = RecordedPipeline()
    batches = BufferedBatches(5, pipeline)
    assert [batches[step][0] for step in (0, 1, 0, 1, 3, 4, 0)] == [0, 1, 0, 1, 3, 4, 0]
    assert pipeline.starts == [0, 0, 3, 0]


def test_wait_seconds_count_only_reading() -> None:
    def slow(first: int) -> Iterator[Batch]:
        while True:
            time.sleep(0.02)
            yield first, first

    batches = BufferedBatches(5, slow)
    for step in range(3):
        batches[step]
    wait_seconds = batches.wait_seconds
    assert wait_seconds >= 3 * 0.02
    time.sleep(0.02)
    assert batches[2] == (0, 0)
    assert batches.wait_seconds == wait_seconds
