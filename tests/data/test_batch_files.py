import errno
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from polybench.data import Dataset, open_dataset, synthetic
from polybench.data import batch_files as epoch_module
from polybench.data.batch_files import (
    EpochFile,
    PipelineFiles,
    cached_epoch,
    open_epoch,
    open_mapped,
    repeat_rows,
    write_epoch,
    write_images,
    write_pipeline_files,
)
from polybench.data.batches import augment, augmentation_stream, epoch_order
from polybench.errors import BadInput
from tests import small_datasets


@pytest.fixture
def dataset(scratch, monkeypatch) -> Dataset:
    monkeypatch.setitem(synthetic.IMAGES, "train", 300)
    return open_dataset("synthetic", 0, scratch)


def check(dataset, order, epoch):
    images, labels = open_epoch(epoch)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert images.flags.c_contiguous
    assert not images.flags.writeable
    assert not labels.flags.writeable
    np.testing.assert_array_equal(images, dataset.images[order].astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(labels, dataset.labels[order])


def test_epoch_has_the_batches_in_order(dataset, tmp_path):
    order = epoch_order(300, 7, 0, 0)
    epoch = write_epoch(dataset, order, tmp_path)
    assert (epoch.steps, epoch.batch_size, epoch.image_shape) == (42, 7, (3, 32, 32))
    assert epoch.bytes == Path(epoch.images_path).stat().st_size + Path(epoch.labels_path).stat().st_size
    assert msgspec.json.decode(msgspec.json.encode(epoch), type=EpochFile) == epoch
    check(dataset, order, epoch)
    first = write_epoch(dataset, order, tmp_path, max_steps=3)
    assert first.steps == 3
    check(dataset, order[:3], first)


@pytest.mark.parametrize("buffer_bytes", [1, 5 * 4 * 3072])
def test_buffer_size_does_not_change_the_epoch(dataset, tmp_path, monkeypatch, buffer_bytes):
    monkeypatch.setattr(epoch_module, "_BUFFER_BYTES", buffer_bytes)
    order = epoch_order(300, 16, 0, 0)
    check(dataset, order, write_epoch(dataset, order, tmp_path))


@pytest.mark.parametrize("position", [0.0, 0.1234, 0.4567, 0.9])
def test_a_cached_epoch_that_was_altered_anywhere_is_written_again(position, monkeypatch, tmp_path):
    monkeypatch.setitem(synthetic.IMAGES, "train", 1000)
    dataset, order = open_dataset("synthetic", 0, tmp_path), epoch_order(1000, 10, 0, 0)
    cached_epoch(dataset, order, tmp_path / "first")
    (cached,) = Path(os.environ["XDG_CACHE_HOME"]).rglob("images.f32")
    before = cached.stat()
    with cached.open("r+b") as file:
        file.seek(int(position * before.st_size))
        file.write(b"\x7f")
    os.utime(cached, ns=(before.st_atime_ns, before.st_mtime_ns))
    check(dataset, order, cached_epoch(dataset, order, tmp_path / "second"))


def test_rewriting_an_epoch_does_not_change_a_mapped_one(dataset, tmp_path):
    order = epoch_order(300, 16, 0, 0)
    images, _ = open_epoch(write_epoch(dataset, order, tmp_path))
    before = images.copy()
    write_epoch(dataset, order[::-1], tmp_path)
    np.testing.assert_array_equal(images, before)


def test_small_disk_is_rejected(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=5_000_000))
    folder = tmp_path / "epoch"
    with pytest.raises(BadInput, match=rf"{folder} has 5\.0 MB free, .*\(\d+ bytes\) are needed"):
        write_epoch(dataset, np.tile(np.arange(300), (2, 1)), folder)


@pytest.mark.parametrize(
    ("code", "message"), [(errno.ENOSPC, "the disk of .* is full"), (errno.EROFS, "cannot write to")]
)
def test_disk_that_fills_up_while_writing_is_reported(dataset, tmp_path, monkeypatch, code, message):
    def fail(*_):
        raise OSError(code, "failed")

    monkeypatch.setattr(epoch_module, "_write_images", fail)
    with pytest.raises(BadInput, match=message):
        write_epoch(dataset, epoch_order(300, 16, 0, 0), tmp_path)


@pytest.mark.parametrize("augmented", [True, False])
def test_written_files_are_mapped_unchanged(tmp_path, augmented):
    data = small_datasets.dataset()
    order = epoch_order(64, 8, 0, 0)
    augmentations = augmentation_stream(8, 8, 0, 8) if augmented else None
    write_images(data, tmp_path)
    file = write_pipeline_files(tmp_path, order, augmentations, tmp_path, loader_workers=3, steps_per_epoch=8)
    file = msgspec.json.decode(msgspec.json.encode(file), type=PipelineFiles)
    assert (file.loader_workers, file.steps_per_epoch, file.bytes > data.images.nbytes) == (3, 8, True)
    images = open_mapped(file.images_path)
    assert not images.flags.writeable
    np.testing.assert_array_equal(images, data.images)
    np.testing.assert_array_equal(open_mapped(file.labels_path), data.labels)
    np.testing.assert_array_equal(open_mapped(file.order_path), order)
    if augmentations is None:
        assert file.augmentations_path is None
    else:
        np.testing.assert_array_equal(open_mapped(file.augmentations_path), augmentations)


@pytest.mark.parametrize("buffer_bytes", [epoch_module._BUFFER_BYTES, 5 * 4 * 3072])
def test_epoch_can_be_augmented(tmp_path, monkeypatch, buffer_bytes):
    monkeypatch.setattr(epoch_module, "_BUFFER_BYTES", buffer_bytes)
    data, order, augmentations = (small_datasets.dataset(), epoch_order(64, 8, 0, 0), augmentation_stream(8, 8, 0, 8))
    images, _ = open_epoch(write_epoch(data, order, tmp_path, max_steps=5, augmentations=augmentations))
    assert len(images) == 5
    for batch, indices, batch_augmentations in zip(images, order, augmentations, strict=False):
        expected = augment(data.images[indices], batch_augmentations)
        np.testing.assert_array_equal(batch, expected.astype(np.float32) / np.float32(255))


def test_a_pipeline_repeats_the_rows_of_its_epoch(tmp_path):
    data, order, augmentations = (small_datasets.dataset(), epoch_order(64, 8, 0, 0), augmentation_stream(8, 8, 0, 8))
    write_images(data, tmp_path)
    epoch = write_epoch(data, order, tmp_path, augmentations=augmentations)
    files = write_pipeline_files(tmp_path, order, augmentations, tmp_path, loader_workers=3, steps_per_epoch=8)
    rows = np.array([5, 0, 5, 2])
    repeated, pipeline = repeat_rows(epoch, files, rows, tmp_path / "repeated")
    (images, labels), (few_images, few_labels) = open_epoch(epoch), open_epoch(repeated)
    np.testing.assert_array_equal(few_images, images[:, rows])
    np.testing.assert_array_equal(few_labels, labels[:, rows])
    np.testing.assert_array_equal(open_mapped(pipeline.order_path), order[:, rows])
    np.testing.assert_array_equal(open_mapped(pipeline.augmentations_path), augmentations[:, rows])
    assert (repeated.batch_size, pipeline.loader_workers, pipeline.steps_per_epoch) == (4, 3, 8)
