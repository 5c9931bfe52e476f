from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from polybench.core.errors import BadInput
from polybench.data.augmentation import augment, decision_stream
from polybench.data.batches import epoch_order
from polybench.data.epoch import open_epoch, write_epoch
from polybench.data.stream import StreamFile, mapped, write_images, write_stream
from tests import small


@pytest.mark.parametrize("augmented", [True, False])
def test_what_is_written_is_what_is_mapped(tmp_path, augmented):
    data = small.dataset()
    order = epoch_order(64, 8, 0, 0)
    decisions = decision_stream(8, 8, 0, 8) if augmented else None
    file = write_stream(write_images(data, tmp_path), order, decisions, tmp_path, workers=3, steps_in_epoch=8)
    file = msgspec.json.decode(msgspec.json.encode(file), type=StreamFile)
    assert (file.workers, file.steps_in_epoch, file.bytes > data.images.nbytes) == (3, 8, True)
    images = mapped(file.images_path)
    assert not images.flags.writeable
    np.testing.assert_array_equal(images, data.images)
    np.testing.assert_array_equal(mapped(file.labels_path), data.labels)
    np.testing.assert_array_equal(mapped(file.order_path), order)
    if decisions is None:
        assert file.decisions_path is None
    else:
        np.testing.assert_array_equal(mapped(file.decisions_path), decisions)


def test_an_epoch_of_varied_images(tmp_path):
    data, order, decisions = small.dataset(), epoch_order(64, 8, 0, 0), decision_stream(8, 8, 0, 8)
    images, _ = open_epoch(write_epoch(data, order, tmp_path, limit=5, decisions=decisions))
    assert len(images) == 5
    for batch, indices, varied in zip(images, order, decisions, strict=False):
        expected = augment(data.images[indices], varied)
        np.testing.assert_array_equal(batch, expected.astype(np.float32) / np.float32(255))


def test_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(BadInput, match="are needed"):
        write_images(small.dataset(), tmp_path)
