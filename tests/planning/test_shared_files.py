"""Files that workers share in a study with input pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polybench.data import Dataset, open_dataset, synthetic
from polybench.data.batch_files import EpochFile, PipelineFiles, open_epoch, open_mapped, write_epoch
from polybench.data.batches import Order, augment
from polybench.errors import BadInput
from polybench.networks.initial_weights import initial_weights
from polybench.planning import shared_files
from polybench.planning.plan import resolve
from polybench.planning.shared_files import SharedFiles
from polybench.schema.options import Study


def make(folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: object) -> SharedFiles:
    monkeypatch.setitem(synthetic.IMAGES, "train", 200)
    study = {"engines": ("fake",), "devices": ("cpu",), "data": "synthetic", "batch_size": 20, "threads": 3}
    return shared_files.write(resolve(Study(**(study | fields))), folder)  # type: ignore[arg-type]


def agree(stream: PipelineFiles | None, epoch: EpochFile) -> None:
    """The epoch file contains the expected output of the pipeline."""
    assert stream is not None
    assert stream.augmentations_path is not None
    images, order = open_mapped(stream.images_path), open_mapped(stream.order_path)
    decisions = open_mapped(stream.augmentations_path)
    for step, (batch, labels) in enumerate(zip(*open_epoch(epoch), strict=True)):
        varied = augment(images[order[step]], decisions[step]).astype(np.float32) / np.float32(255)
        np.testing.assert_array_equal(batch, varied)
        np.testing.assert_array_equal(labels, open_mapped(stream.labels_path)[order[step]])


def test_pipeline_and_preloaded_batches_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, monkeypatch, input="pipeline", augment=True, parity_steps=2)
    assert (files.steps_in_epoch, files.epoch.steps, files.parity.steps) == (10, 8, 3)
    agree(files.stream, files.epoch)
    agree(files.parity_stream, files.parity)
    assert files.stream is not None
    assert files.stream.loader_workers == 3  # as many as threads
    assert len(open_mapped(files.stream.order_path)) == 12  # the untimed steps come on top
    assert files.loaded_bytes > 200 * 3072


def test_a_timing_block_may_be_longer_than_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, monkeypatch, input="pipeline", steps_per_round=25, loader_workers=0)
    assert files.stream is not None
    assert len(open_mapped(files.stream.order_path)) == 27
    assert (files.stream.loader_workers, files.stream.augmentations_path) == (0, None)


@pytest.mark.parametrize(
    ("fields", "epochs"),
    [({"epochs": 3}, 3), ({"target_accuracy": 0.5}, 20), ({"target_accuracy": 0.5, "epochs": 4}, 4)],
    ids=["epochs", "target_accuracy", "target_accuracy with epochs"],
)
def test_epochs_of_a_training_differ(
    fields: dict[str, Any], epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make(tmp_path, monkeypatch, input="pipeline", augment=True, **fields).stream
    assert stream is not None
    assert stream.augmentations_path is not None
    for path in (stream.order_path, stream.augmentations_path):
        steps = open_mapped(path)
        assert len(steps) == epochs * stream.steps_per_epoch
        assert len({epoch.tobytes() for epoch in np.split(steps, epochs)}) == epochs


def test_all_test_images_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "test", 999)
    test = make(tmp_path, monkeypatch, accuracy=True).test
    assert test is not None
    dataset = open_dataset("synthetic", 0, tmp_path, "test")
    images, labels = open_epoch(test)
    np.testing.assert_array_equal(labels.reshape(-1), dataset.labels)
    np.testing.assert_array_equal(images[-1, -1] * 255, dataset.images[-1])


@pytest.mark.usefixtures("own_data_caches")
def test_an_epoch_is_cached_by_data_order_and_batch_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def write(dataset: Dataset, order: Order, folder: Path) -> EpochFile:
        written.append(folder)
        return write_epoch(dataset, order, folder)

    monkeypatch.setattr("polybench.data.batch_files.write_epoch", write)
    files = []
    for number, fields in enumerate([{}, {}, {"seed": 1}, {"batch_size": 10}, {"batch_size": 20}]):
        (tmp_path / str(number)).mkdir()
        files.append(make(tmp_path / str(number), monkeypatch, parity=False, **fields))
    assert [folder.parent.name for folder in written] == ["0", "2", "3"]
    for again in (files[1], files[4]):
        for mine, first in zip(open_epoch(again.epoch), open_epoch(files[0].epoch), strict=True):
            np.testing.assert_array_equal(mine, first)
    assert open_epoch(files[3].epoch)[0].shape == (20, 10, 3, 32, 32)


def test_all_batches_are_preloaded_without_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, monkeypatch)
    assert (files.steps_in_epoch, files.epoch.steps, files.stream) == (10, 10, None)


def test_batches_of_sequence_networks_contain_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, monkeypatch, model="imdb-bilstm")
    assert (files.epoch.dtype, files.epoch.image_shape, files.parity.dtype) == ("int32", (100,), "int32")
    batches, _ = open_epoch(files.epoch)
    assert 0 <= batches.min() < 1000 < batches.max() < 20_000


def test_sequences_reject_input_pipelines() -> None:
    with pytest.raises(BadInput, match="pipelines read images, but char-lstm takes sequences"):
        resolve(Study(engines=("fake",), devices=("cpu",), model="char-lstm", input="pipeline"))


def test_trainings_of_other_seeds_begin_with_other_weights(tmp_path: Path) -> None:
    plan = resolve(Study(engines=("fake",), devices=("cpu",), data="synthetic", seed=1))
    one, two = (np.load(shared_files.seeded_weights(plan, seed, tmp_path))["conv1.weight"] for seed in (1, 2))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(one, initial_weights(plan.model, 1)["conv1.weight"])
