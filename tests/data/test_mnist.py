"""MNIST's files as they are published, and rejection of invalid ones."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from polybench.data import mnist, open_dataset
from polybench.errors import BadInput

RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.integers(0, 256, (1203, 28, 28), np.uint8), RANDOM.integers(0, 10, 1203, np.uint8)


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def write(folder: Path, images: bytes, labels: bytes, prefix: str = "train", suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_images_and_labels_match_the_files(tmp_path: Path, scratch: Path, suffix: str) -> None:
    folder = write(tmp_path / "data" / "MNIST" / "raw", idx(IMAGES), idx(LABELS), suffix=suffix)
    write(folder, idx(IMAGES[:7]), idx(LABELS[:7]), "t10k", suffix)
    data = open_dataset(str(tmp_path / "data"), 0, scratch, image_shape=(1, 28, 28))
    assert (data.name, data.source, data.is_official) == ("mnist", str(folder), True)
    np.testing.assert_array_equal(data.images, IMAGES[:, None])
    np.testing.assert_array_equal(data.labels, LABELS)
    test = open_dataset(str(folder), 0, scratch, "test", (1, 28, 28))
    np.testing.assert_array_equal(test.images, IMAGES[:7, None])


def test_auto_uses_mnist_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.setenv("POLYBENCH_DATA", str(tmp_path / "data"))
    write(tmp_path / "data" / "mnist", idx(IMAGES), idx(LABELS))
    assert open_dataset("auto", 0, scratch, image_shape=(1, 28, 28)).name == "mnist"
    assert open_dataset("mnist", 0, scratch, image_shape=(1, 28, 28)).name == "mnist"


def test_folder_of_mnist_is_rejected_for_other_networks(tmp_path: Path, scratch: Path) -> None:
    folder = write(tmp_path / "mnist", idx(IMAGES), idx(LABELS))
    with pytest.raises(BadInput, match="MNIST has images of 1 x 28 x 28 in 10 classes, but this network takes 3 x 32"):
        open_dataset(str(folder), 0, scratch)


INVALID = [
    (idx(IMAGES)[:-5], idx(LABELS), r"images-idx3-ubyte(\.gz)? is truncated"),
    (idx(IMAGES)[:9], idx(LABELS), r"images-idx3-ubyte(\.gz)? is truncated: 9 bytes"),
    (b"", idx(LABELS), r"images-idx3-ubyte(\.gz)? is truncated: 0 bytes"),
    (idx(IMAGES) + b"0", idx(LABELS), "has more than the 1203 entries"),
    (idx(IMAGES), idx(LABELS[:-1]), "has 1202 labels for the 1203 images"),
    (idx(IMAGES), idx(np.r_[LABELS[:1100], np.uint8(10), LABELS[1101:]]), "label at 1100 is 10"),
    (idx(IMAGES[:, :27]), idx(LABELS), "images of 27 x 28"),
    (idx(LABELS), idx(LABELS), "is not an IDX file of bytes with 3 axes"),
    (
        struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 28, 28),
        idx(LABELS),
        "4294967295 entries in its header: expected 1 to 150,000",
    ),
]


@pytest.mark.parametrize(("images", "labels", "message"), INVALID, ids=range(len(INVALID)))
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_invalid_file_is_named(tmp_path: Path, images: bytes, labels: bytes, message: str, suffix: str) -> None:
    folder = write(tmp_path / "mnist", images, labels, suffix=suffix)
    with pytest.raises(BadInput, match=message):
        list(mnist.read(folder, "train"))


def test_damaged_gzip_file_is_rejected(tmp_path: Path) -> None:
    folder = write(tmp_path / "mnist", idx(IMAGES), idx(LABELS), suffix=".gz")
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(BadInput, match=r"train-images-idx3-ubyte.gz is truncated, damaged or not a gzip file"):
        list(mnist.read(folder, "train"))
    file.write_bytes(b"not an archive")
    with pytest.raises(BadInput, match="damaged or not a gzip file"):
        list(mnist.read(folder, "train"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "mnist", idx(IMAGES), idx(LABELS))
    with pytest.raises(BadInput, match=r"t10k-images-idx3-ubyte not found in .*mnist; MNIST is"):
        list(mnist.read(folder, "test"))


def test_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    folder = write(tmp_path / "mnist", idx(IMAGES), idx(LABELS))
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(BadInput, match=r"cannot read .*train-images-idx3-ubyte: Input/output error"):
        list(mnist.read(folder, "train"))
