import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import platformdirs
import pytest

from polybench.data import data_folder, open_dataset, synthetic
from polybench.errors import BadInput


@pytest.fixture
def few_images(monkeypatch):
    monkeypatch.setitem(synthetic.IMAGES, "train", 130)


def test_environment_variable_overrides_the_data_folder(monkeypatch, no_data_folder):
    assert data_folder() == no_data_folder
    monkeypatch.delenv("POLYBENCH_DATA")
    assert data_folder() == Path(platformdirs.user_data_dir("polybench")) / "data"


def test_auto_uses_data_on_disk(small_cifar, scratch, monkeypatch, few_images):
    assert open_dataset("auto", 0, scratch).name == "synthetic"
    folder = small_cifar.binary_folder()
    monkeypatch.setenv("POLYBENCH_DATA", str(folder.parent))
    dataset = open_dataset("auto", 0, scratch)
    assert (dataset.name, dataset.source) == ("cifar10", str(folder))


GREY = {"image_shape": (1, 28, 28), "classes": 10}
TOKENS = {"image_shape": (5,), "classes": 2, "vocabulary": 9}
LARGE = {"image_shape": (3, 64, 64), "classes": 2}


@pytest.mark.parametrize(
    ("data", "network", "message"),
    [
        ("/some/path", {}, "--data /some/path: no such file or folder: expected auto, cifar10, imdb, mnist, synthetic"),
        ("/some/path", GREY, "no such file or folder"),
        ("/some/path", LARGE, "no such file or folder"),
        ("", {}, "--data is empty: expected auto, cifar10, imdb, mnist, synthetic, or the path"),
        ("cifar10", {}, r"CIFAR-10 not found in .*none; `polybench data fetch` downloads"),
        ("mnist", GREY, "MNIST not found in .*none; MNIST is train-"),
        ("imdb", TOKENS, "IMDb not found in .*none; IMDb is aclImdb"),
        ("below", {}, "--data below: CIFAR-10 not found in below; `polybench data fetch`"),
        (".", GREY, r"MNIST not found in \.; MNIST is train-"),
        (".", {"image_shape": (1, 9, 9), "classes": 2}, "no data for a network that takes 1 x 9 x 9 in 2 classes"),
        (
            "cifar10",
            LARGE,
            "CIFAR-10 has images of 3 x 32 x 32 in 10 .* takes 3 x 64 x 64 in 2 .*or a folder of images",
        ),
        (__file__, LARGE, "CIFAR-10 has images of 3 x 32 x 32 in 10 classes, but this network takes 3 x 64 x 64 in 2"),
        ("mnist", {}, "MNIST has images of 1 x 28 x 28 .*; use --model mnist-cnn or mnist-mlp, or --data synthetic"),
        ("mnist", TOKENS, "MNIST has images .*, but this network takes 5 from 9 tokens in 2 classes"),
        ("cifar10", TOKENS, "CIFAR-10 has images .*, but this network takes 5 from 9 tokens in 2 classes"),
        ("imdb", {}, "IMDb has reviews .*; use --model imdb-bilstm, or --data synthetic"),
        (
            "imdb",
            TOKENS | {"classes": 3},
            "IMDb has reviews from .* in 2 classes, .* takes 5 from 9 tokens in 3 classes",
        ),
        ("imdb", TOKENS | {"vocabulary": 2}, "IMDb has reviews from at least 3 tokens"),
    ],
)
def test_missing_and_unsuitable_data_are_reported(scratch, tmp_path, monkeypatch, data, network, message):
    (tmp_path / "somewhere" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "somewhere")
    monkeypatch.setenv("POLYBENCH_DATA", str(tmp_path / "none"))
    with pytest.raises(BadInput, match=message):
        open_dataset(data, 0, scratch, **network)


def test_input_larger_than_the_data_set_is_rejected(scratch):
    with pytest.raises(BadInput, match=r"no synthetic test data of 3 x 4000 x 4000: an input has 48,000,000"):
        open_dataset("synthetic", 0, scratch, "test", image_shape=(3, 4000, 4000), classes=2)


def test_auto_generates_images_that_fit_the_network(small_cifar, scratch, monkeypatch, few_images):
    monkeypatch.setenv("POLYBENCH_DATA", str(small_cifar.binary_folder().parent))
    dataset = open_dataset("auto", 0, scratch, image_shape=(3, 64, 48), classes=2)
    assert dataset.source == "43 synthetic images of 3 x 64 x 48, seed 0"
    assert dataset.images.shape == (43, 3, 64, 48)
    assert dataset.labels.max() == 1


def test_arrays_are_mapped_read_only_and_hashed(scratch, few_images):
    dataset = open_dataset("synthetic", 0, scratch)
    assert dataset.source == "130 synthetic images, seed 0"
    assert not dataset.images.flags.writeable
    assert not dataset.labels.flags.writeable
    # The file has the images, then the labels: its `sha256sum` is the data set's SHA-256.
    (file,) = scratch.glob("*/*")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == dataset.sha256


def test_opening_another_data_set_does_not_change_the_first(scratch, few_images):
    first = open_dataset("synthetic", 0, scratch)
    before = np.array(first.images)
    second = open_dataset("synthetic", 1, scratch)
    assert second.sha256 != first.sha256
    np.testing.assert_array_equal(first.images, before)


def test_synthetic_images_are_generated_once(tmp_path, few_images, monkeypatch):
    opened = [open_dataset("synthetic", 3, tmp_path / "first", split) for split in ("train", "test")]

    def generate(*_):
        raise AssertionError

    monkeypatch.setattr(synthetic, "image_chunks", generate)
    for split, earlier in zip(("train", "test"), opened, strict=True):
        cached = open_dataset("synthetic", 3, tmp_path / "second", split)
        assert cached.sha256 == earlier.sha256
        np.testing.assert_array_equal(cached.images, earlier.images)
        np.testing.assert_array_equal(cached.labels, earlier.labels)
    with pytest.raises(AssertionError):
        open_dataset("synthetic", 4, tmp_path / "second")


def test_small_disk_is_rejected(scratch, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(
        BadInput, match=r"scratch/synthetic-train has 0\.0 MB free, but 153\.7 MB \(153650000 bytes\) are needed"
    ):
        open_dataset("synthetic", 0, scratch)


@pytest.mark.parametrize("data", ["~unknown-user", "x" * 5000, "a\0b", "\ud800"])
def test_invalid_path_is_rejected(data, tmp_path):
    with pytest.raises(BadInput, match="--data"):
        open_dataset(data, 0, tmp_path)
