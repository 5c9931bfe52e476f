"""Test accuracy and loss, evaluated in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polybench.data.batch_files import open_epoch, write_epoch
from polybench.engines.base import Array
from polybench.engines.reference.network import logits
from polybench.networks.initial_weights import initial_weights
from polybench.networks.lenet import LENET
from polybench.protocol import calls
from polybench.worker import handler
from tests import small_datasets
from tests.worker_sessions import InProcess


@pytest.mark.parametrize("images", [1, 7, 8, 19])
def test_accuracy_and_loss_include_all_images_of_every_batch(
    images: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "EVALUATION_BATCH_SIZE", 8)
    files, folder = small_datasets.files(tmp_path), tmp_path / "test"
    folder.mkdir()
    worker = InProcess("polybench.engines.reference.engine:ReferenceEngine")
    worker.request(calls.prepare(small_datasets.job(), str(files.weights), files.epoch))
    data, order = small_datasets.dataset(images, seed=1), np.arange(images)[None]
    pixels = open_epoch(write_epoch(data, order, folder))[0][0]
    correct = logits(LENET, initial_weights(LENET, 0), pixels).argmax(axis=1).astype(np.uint8)
    for wrong in (0, images - 1):
        labels = correct.copy()
        labels[wrong] = (labels[wrong] + 1) % 10
        test = write_epoch(data._replace(labels=labels), order, folder)
        evaluated = worker.request(calls.evaluate(test))
        assert evaluated.accuracy == (images - 1) / images
        of_labels = np.take_along_axis(softmax(pixels), labels[:, None].astype(np.int64), axis=1)
        assert evaluated.loss == pytest.approx(-np.log(of_labels).mean(), rel=1e-12)


def softmax(pixels: Array) -> Array:
    powers = np.exp(logits(LENET, initial_weights(LENET, 0), pixels))
    return powers / powers.sum(axis=1, keepdims=True)
