"""How many of the test images are classified rightly, some at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polybench.data.epoch import open_epoch, write_epoch
from polybench.engines.reference.inference import logits
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from polybench.wire.messages import Evaluate, Evaluated, Prepare, Prepared
from polybench.worker import trained
from tests import small
from tests.sessions import InProcess


@pytest.mark.parametrize("images", [1, 7, 8, 19])
def test_the_accuracy_is_that_of_all_images(
    images: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained, "EVALUATED", 8)
    files, folder = small.files(tmp_path), tmp_path / "test"
    folder.mkdir()
    worker = InProcess("polybench.engines.reference.engine:ReferenceEngine")
    worker.ask(Prepare(small.job(), str(files.weights), files.epoch), Prepared)
    data, order = small.dataset(images, seed=1), np.arange(images)[None]
    pixels = open_epoch(write_epoch(data, order, folder))[0][0]
    right = logits(LENET, initial_weights(LENET, 0), pixels).argmax(axis=1).astype(np.uint8)
    for wrong in (0, images - 1):
        labels = right.copy()
        labels[wrong] = (labels[wrong] + 1) % 10
        test = write_epoch(data._replace(labels=labels), order, folder)
        evaluated = worker.ask(Evaluate(test), Evaluated)
        assert evaluated == Evaluated((images - 1) / images)
