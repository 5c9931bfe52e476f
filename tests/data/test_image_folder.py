import os
import sys

import numpy as np
import pytest
from PIL import Image

from polybench.data import image_folder, open_dataset
from polybench.errors import BadInput

SHAPE = (3, 6, 10)


@pytest.fixture
def photos(tmp_path):
    """Two classes with five images, whose names indicate their content."""
    folder = tmp_path / "photos"
    random = np.random.default_rng(0)
    (folder / "cat" / "more").mkdir(parents=True)
    (folder / "dog").mkdir()
    (folder / ".cache").mkdir()
    (folder / "notes.txt").write_text("notes")
    (folder / "cat" / "list.txt").write_text("a, b")
    exact = random.integers(0, 256, (6, 10, 3), np.uint8)
    Image.fromarray(exact).save(folder / "cat" / "a.png")
    Image.new("L", (50, 20), 77).save(folder / "cat" / "more" / "grey.PNG")
    Image.new("RGB", (3, 3), (10, 200, 30)).save(folder / "dog" / "a.bmp")
    Image.new("RGBA", (300, 500), (9, 8, 7, 255)).save(folder / "dog" / "b.png")
    halves = np.zeros((60, 100, 3), np.uint8)
    halves[:, 50:] = 200
    Image.fromarray(halves).save(folder / "dog" / "halves.jpg", quality=95)
    return folder, exact


def read(folder, scratch, split="train", classes=2):
    return open_dataset(str(folder), 0, scratch, split, SHAPE, classes)


def test_images_are_ordered_by_class_and_resized(photos, scratch, monkeypatch):
    monkeypatch.setattr(image_folder, "_BATCH_IMAGES", 2)
    folder, exact = photos
    data = read(folder, scratch)
    assert (data.name, data.source) == ("images", str(folder))
    assert data.images.shape == (5, *SHAPE)
    assert data.labels.tolist() == [0, 0, 1, 1, 1]
    np.testing.assert_array_equal(data.images[0], exact.transpose(2, 0, 1))
    assert (data.images[1] == 77).all()
    for image, colour in zip(data.images[2:4], [(10, 200, 30), (9, 8, 7)], strict=True):
        assert (image == np.reshape(colour, (3, 1, 1))).all()
    left, right = data.images[4][:, :, :4], data.images[4][:, :, 6:]  # the middle columns are mixed
    assert left.max() < 8
    assert abs(right.astype(int) - 200).max() < 8


def test_hash_depends_on_the_images_alone(photos, tmp_path):
    hashes = {read(photos[0], tmp_path / name).sha256 for name in ("one", "two")}
    assert len(hashes) == 1


def test_broken_image_is_named(photos, scratch):
    broken = photos[0] / "dog" / "broken.jpg"
    broken.write_bytes((photos[0] / "dog" / "halves.jpg").read_bytes()[:500])
    with pytest.raises(BadInput, match=r"Pillow cannot read .*dog/broken\.jpg: .*; fix or remove it"):
        read(photos[0], scratch)


def test_image_with_too_many_pixels_is_not_decoded(photos, scratch):
    Image.new("1", (9000, 9000)).save(photos[0] / "dog" / "huge.png")
    with pytest.raises(BadInput, match=r"dog/huge\.png has 9000 x 9000 pixels"):
        read(photos[0], scratch)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipes_and_devices_are_rejected(photos, scratch, make):
    make(photos[0] / "dog" / "endless.png")
    with pytest.raises(BadInput, match=r"dog/endless\.png is not a regular file"):
        read(photos[0], scratch)


def test_network_must_have_as_many_classes(photos, scratch):
    with pytest.raises(BadInput, match=r"has 2 classes \(cat, dog\), but this network has 4"):
        read(photos[0], scratch, classes=4)


def test_class_without_images_is_rejected(photos, scratch):
    (photos[0] / "bird").mkdir()
    with pytest.raises(BadInput, match=r"no image in .*bird; each subfolder is a class"):
        read(photos[0], scratch, classes=3)


def test_train_and_test_folders_are_the_splits(photos, tmp_path, scratch):
    with pytest.raises(BadInput, match="has no test images; move the classes' folders to"):
        read(photos[0], scratch, "test")
    both = tmp_path / "both"
    both.mkdir()
    photos[0].rename(both / "train")
    with pytest.raises(BadInput, match=r"no folders of images in .*test"):
        read(both, scratch, "test")
    (both / "test" / "cat").mkdir(parents=True)
    (both / "test" / "dog").mkdir()
    for name in ("cat", "dog"):
        Image.new("RGB", (9, 9)).save(both / "test" / name / "black.png")
    assert len(read(both, scratch).images) == 5
    assert read(both, scratch, "test").labels.tolist() == [0, 1]


def test_missing_pillow_is_reported_with_its_install_command(photos, scratch, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench-dl\[images\]'"):
        read(photos[0], scratch)
