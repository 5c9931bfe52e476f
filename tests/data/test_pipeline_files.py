from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from polybench.data.batch_files import (
    PipelineFiles,
    open_epoch,
    open_mapped,
    write_epoch,
    write_images,
    write_pipeline_files,
)
from polybench.data.batches import augment, augmentation_stream, epoch_order
from polybench.errors import BadInput
from tests import small_datasets


@pytest.mark.parametrize("augmented", [True, False])
def test_written_files_are_mapped_unchanged(tmp_path, augmented):
    data = small_datasets.dataset()
    order = epoch_order(64, 8, 0, 0)
    augmentations = augmentation_stream(8, 8, 0, 8) if augmented else None
    file = write_pipeline_files(
        write_images(data, tmp_path), order, augmentations, tmp_path, loader_workers=3, steps_per_epoch=8
    )
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


def test_epoch_can_be_augmented(tmp_path):
    data, order, augmentations = (
        small_datasets.dataset(),
        epoch_order(64, 8, 0, 0),
        augmentation_stream(8, 8, 0, 8),
    )
    images, _ = open_epoch(write_epoch(data, order, tmp_path, max_steps=5, augmentations=augmentations))
    assert len(images) == 5
    for batch, indices, batch_augmentations in zip(images, order, augmentations, strict=False):
        expected = augment(data.images[indices], batch_augmentations)
        np.testing.assert_array_equal(batch, expected.astype(np.float32) / np.float32(255))


def test_small_disk_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(BadInput, match="are needed"):
        write_images(small_datasets.dataset(), tmp_path)
