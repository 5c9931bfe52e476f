"""Batches read from a pipeline: restarts, and time spent waiting."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

import numpy as np
import pytest

from polybench.engines.shared.batches import Batch, BufferedBatches, dropout_mask, dropout_masks
from polybench.networks.keras_examples import KERAS_CNN
from polybench.networks.layers import Dropout


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


def test_masks_equal_the_golden_mask() -> None:
    # If the definition changes, update this value and the CHANGELOG.
    mask = dropout_mask(Dropout("dropout1", 0.25), (4, 5), seed=0, step=3)
    assert np.packbits(mask > 0).tobytes().hex() == "dfede0"


def test_a_mask_value_equals_a_manual_computation() -> None:
    # crc32("dropout1") = 0x61f61c4c
    bits = np.random.PCG64(np.random.SeedSequence([7, 0x61F61C4C, 2])).random_raw()
    expected = 0.0 if (bits >> 11) * 2.0**-53 < 0.5 else 2.0
    assert dropout_mask(Dropout("dropout1", 0.5), (3,), seed=7, step=2)[0] == expected


def test_every_dropout_layer_has_a_mask_in_the_shape_of_its_input() -> None:
    masks = dropout_masks(KERAS_CNN, 2, seed=0, step=0)
    assert {name: mask.shape for name, mask in masks.items()} == {
        "dropout1": (2, 32, 15, 15),
        "dropout2": (2, 64, 6, 6),
        "dropout3": (2, 512),
    }


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_masks_have_the_scale_of_the_rate_and_mean_one(rate: float) -> None:
    mask = dropout_mask(Dropout("d", rate), (100_000,), seed=0, step=0)
    assert set(np.unique(mask)) <= {0.0, 1 / (1 - rate)}
    # The standard deviation of the mean is at most 0.0032; the tolerance is five of them.
    assert mask.mean() == pytest.approx(1, abs=0.016)


def test_masks_differ_between_seeds_steps_and_layers() -> None:
    masks = [
        dropout_mask(Dropout(name, 0.5), (1000,), seed, step).tobytes()
        for name, seed, step in (("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("a", 0, 1))
    ]
    assert len({hashlib.sha256(mask).digest() for mask in masks}) == 4
