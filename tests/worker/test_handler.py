"""Test accuracy and loss, evaluated in batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from polybench.data.batch_files import open_epoch, write_epoch
from polybench.engines.base import Array
from polybench.engines.fake.engine import FakeEngine
from polybench.engines.reference.network import logits
from polybench.machine.memory import RssReading
from polybench.networks.initial_weights import initial_weights
from polybench.networks.lenet import LENET
from polybench.protocol import calls
from polybench.protocol.calls import Evaluated
from polybench.worker import handler
from tests import small_datasets
from tests.worker.recorder import Recorder
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


def test_accuracy_and_loss_of_sequences_are_means_over_positions() -> None:
    engine: Any = SimpleNamespace(evaluate=lambda _, labels: (labels.size / 2, 3.0 * labels.size))
    labels = np.zeros((4, 5), np.int64)
    assert handler.evaluate(engine, labels, labels) == Evaluated(0.5, 3.0)


def test_the_time_of_an_import_contains_that_of_the_engines_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    def make_engine() -> FakeEngine:
        wait(3.0)  # imports the framework
        return FakeEngine()

    def import_module(_: str) -> SimpleNamespace:
        wait(2.0)
        return SimpleNamespace(make_engine=make_engine)

    monkeypatch.setattr(handler, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(handler, "importlib", SimpleNamespace(import_module=import_module))
    files = small_datasets.files(tmp_path)
    worker = InProcess("module:make_engine")
    prepared = worker.request(calls.prepare(small_datasets.job(), str(files.weights), files.epoch))
    assert prepared.startup.import_seconds == 5.0


class BlockRecorder(Recorder):
    """Times steps together, and records waits."""

    def __init__(self) -> None:
        super().__init__("block")

    def wait_until_idle(self) -> None:
        self.calls.append("wait")

    def training_state(self) -> dict[str, Array]:
        return {}


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[InProcess, BlockRecorder]:
    """A worker that is prepared, and its engine without the calls so far."""
    files = small_datasets.files(tmp_path)
    worker = InProcess("tests.worker.test_handler:BlockRecorder")
    worker.request(calls.prepare(small_datasets.job(), str(files.weights), files.epoch))
    engine: Any = worker._worker.engine
    engine.calls.clear()
    return worker, engine


def test_a_block_of_steps_that_are_timed_together_has_their_number(recorded: tuple[InProcess, BlockRecorder]) -> None:
    measured = recorded[0].request(calls.measure_block(10))
    assert (measured.step_seconds, measured.steps_per_value) == ([1.0], 10)


def test_an_engine_is_idle_after_each_answer_except_within_a_training(
    recorded: tuple[InProcess, BlockRecorder],
) -> None:
    worker, engine = recorded
    worker.request(calls.train(0, 3))
    assert engine.calls == ["run 0+3"]
    worker.request(calls.run_steps(3, 1))
    assert engine.calls == ["run 0+3", "run 3+1", "wait"]


def test_a_training_starts_with_its_weights_in_a_new_state(
    recorded: tuple[InProcess, BlockRecorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, engine = recorded
    monkeypatch.setattr(engine, "set_initial_weights", lambda weights: engine.calls.append(f"{len(weights)} tensors"))
    worker.request(calls.reset_training(str(tmp_path / "weights.npz")))
    assert engine.calls == [f"{len(initial_weights(LENET, 0))} tensors", "reset", "wait"]


def test_the_memory_of_the_import_is_that_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "read_rss", lambda: RssReading(30, 12, 50))
    files = small_datasets.files(tmp_path)
    worker = InProcess("tests.worker.test_handler:BlockRecorder")
    worker.request(calls.prepare(small_datasets.job(), str(files.weights), files.epoch))
    assert worker.request(calls.count_allocations(1)).memory.rss_after_import_bytes == 42
