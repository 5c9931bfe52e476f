"""Training images and sequences, each data set in one file that every process maps.

ADD A DATA SET: a file with a generator of `Chunk`s, and a line in `open_dataset`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import platformdirs
from numpy.typing import DTypeLike

from polybench.data import cifar10, imdb_archive, imdb_tokens, mnist, synthetic
from polybench.data.array_chunks import (
    CLASSES,
    IMAGE_BYTES,
    IMAGE_SHAPE,
    Chunk,
    Inputs,
    Pixels,
    Shape,
    Split,
    dataset_sha256,
    map_chunks,
    write_chunks,
)
from polybench.data.disk import check_free_space
from polybench.data.file_cache import FileCache, cache_key
from polybench.data.image_folder import find_images, is_image_folder, read_images
from polybench.errors import BadInput

_MAX_BYTES = 50_000 * (IMAGE_BYTES + 1)

_CACHE_BYTES = 1 << 29
"""Size of the cache of synthetic images: generating 50,000 takes five times as long as reading them."""

DatasetName = Literal["cifar10", "images", "imdb", "mnist", "synthetic"]


DATASET_NAMES = ("auto", "cifar10", "imdb", "mnist", "synthetic")
"""Names that `--data` accepts. Anything else is a path; a name wins over a folder of the same name."""
_EXPECTED = f"{', '.join(DATASET_NAMES)}, or the path of an archive or a folder"


class Dataset(NamedTuple):
    """Labelled images or sequences, read-only and memory-mapped; `images` are as in `array_chunks.Chunk`.

    Images are NCHW; `labels` is (N,) uint8, starting at 0.
    `source` is their origin; `sha256` hashes the images' bytes, then the labels'.
    `is_official` is False for data in CIFAR-10's format whose files differ from the published ones.
    """

    name: DatasetName
    source: str
    images: Inputs
    labels: Pixels
    sha256: str
    is_official: bool = True


def data_folder() -> Path:
    """Return the folder of downloaded data sets; the environment variable POLYBENCH_DATA overrides it."""
    override = os.environ.get("POLYBENCH_DATA")
    return Path(override) if override else Path(platformdirs.user_data_dir("polybench")) / "data"


def open_dataset(
    data: str,
    seed: int,
    scratch: Path,
    split: Split = "train",
    image_shape: Shape = IMAGE_SHAPE,
    classes: int = CLASSES,
    vocabulary: int | None = None,
) -> Dataset:
    """Read or generate a data set with a few megabytes of memory, except for IMDb's text.

    Args:
        data: `auto` (CIFAR-10 or MNIST if it is in the data folder and fits, else synthetic), `synthetic`,
            `cifar10`, `mnist`, `imdb`, or a path: of an official archive or its unpacked folder, of a folder
            of MNIST's files, or of a folder of images with one subfolder per class. A network that takes
            tokens accepts only IMDb and synthetic tokens.
        seed: seed of the synthetic data.
        scratch: folder for the mapped file, 154 MB for 50,000 images.
        split: "train" or "test".
        image_shape: input shape of the network: (channels, height, width), (time, features), or tokens
            (time,).
        classes: number of the network's classes.
        vocabulary: number of the network's tokens; None if it does not take tokens.

    Raises:
        BadInput: the data does not exist, is not in a known format, does not fit the network, or `scratch`
            has too little space.
    """
    if vocabulary is not None:
        return _open_tokens(data, seed, scratch, split, image_shape, classes, vocabulary)
    if data == "imdb":
        raise BadInput(f"--data {data}: reviews are tokens, which this network does not take; try --model imdb-bilstm")
    fits = (image_shape, classes) == (IMAGE_SHAPE, CLASSES)
    fits_mnist = (image_shape, classes) == (mnist.IMAGE_SHAPE, mnist.CLASSES)
    if data != "synthetic" and (folder := _mnist_folder(data, fits_mnist)) is not None:
        file = scratch / f"mnist-{split}.u8"
        return _collect("mnist", str(folder), mnist.read(folder, split), file, image_shape)
    if data == "synthetic" or (data == "auto" and not fits):
        return _make_synthetic(seed, scratch, split, image_shape, classes)
    if _has_three_channels(image_shape) and _is_user_image_folder(data):
        return _read_folder(_path(data), scratch, split, image_shape, classes)
    if not fits:
        raise BadInput(_mismatch(data, image_shape, classes))
    source = cifar10.locate(data_folder() if data in ("auto", "cifar10") else _path(data))
    if source is None and data == "auto":
        return _make_synthetic(seed, scratch, split, image_shape, classes)
    if source is None:
        raise BadInput(_no_cifar10(data))
    file = scratch / f"cifar10-{split}.u8"
    found = _collect("cifar10", str(source), cifar10.read(source, split), file, IMAGE_SHAPE)
    return found._replace(is_official=cifar10.is_official_archive(source, split))


def _mismatch(data: str, shape: Shape, classes: int) -> str:
    """Explain the lack of images for a network that does not take CIFAR-10's."""
    requirement = f"this network takes {_format_shape(shape)} in {classes} classes"
    if data not in DATASET_NAMES and not _path(data).exists():
        return _no_such_path(data)
    if data not in DATASET_NAMES and (shape, classes) == (mnist.IMAGE_SHAPE, mnist.CLASSES):
        return f"--data {data}: MNIST not found, and {requirement}; {mnist.HINT}; or use --data synthetic"
    if not _has_three_channels(shape) and _is_user_image_folder(data):
        return f"--data {data}: folder of colour images, but {requirement}; use --data synthetic"
    return (
        f"--data {data}: CIFAR-10 has images of {_format_shape(IMAGE_SHAPE)} in {CLASSES} classes, but"
        f" {requirement}; use --data synthetic"
        f"{', or a folder of images' if _has_three_channels(shape) else ''}"
    )


def _has_three_channels(shape: Shape) -> bool:
    return len(shape) == 3 and shape[0] == 3


def expected_images(data: str, split: Split, image_shape: Shape = IMAGE_SHAPE) -> int:
    """Estimate how many images `open_dataset` will find, without opening them: the number of synthetic ones.

    CIFAR-10 has the same number, MNIST a fifth more, and IMDb half as many training reviews.

    Raises:
        BadInput: `data` is a folder of images without this split.
    """
    if _has_three_channels(image_shape) and _is_user_image_folder(data):
        return len(find_images(_path(data), split).files)
    return synthetic.image_count(split, image_shape)


def _path(data: str) -> Path:
    try:
        path = Path(data).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as error:  # unknown user, invalid file name
        raise BadInput(f"--data {data[:80]}: {error}"[:200]) from None
    if not data:
        raise BadInput(f"--data is empty: expected {_EXPECTED}")
    return path


def _open_tokens(
    data: str, seed: int, scratch: Path, split: Split, shape: Shape, classes: int, vocabulary: int
) -> Dataset:
    """Open IMDb or synthetic tokens; arguments as in `open_dataset`."""
    if data == "synthetic":
        return _make_synthetic(seed, scratch, split, shape, classes, vocabulary)
    if data in ("cifar10", "mnist"):
        raise BadInput(f"--data {data}: images, but this network takes tokens; use --data imdb or synthetic")
    folder = data_folder() if data in ("auto", "imdb") else _path(data)
    source = imdb_archive.locate(folder)
    fits = classes == imdb_tokens.CLASSES and vocabulary >= imdb_tokens.MIN_TOKENS
    if data == "auto" and (source is None or not fits):
        return _make_synthetic(seed, scratch, split, shape, classes, vocabulary)
    if source is None:
        raise BadInput(f"--data {data}: IMDb not found in {folder}; {imdb_archive.HINT}; or use --data synthetic")
    if classes != imdb_tokens.CLASSES:
        raise BadInput(f"--data {data}: IMDb has {imdb_tokens.CLASSES} classes, but this network has {classes}")
    chunks = imdb_tokens.read(source, split, shape[0], vocabulary)
    return _collect("imdb", str(source), chunks, scratch / f"imdb-{split}.i32", shape, dtype=np.int32)


def _mnist_folder(data: str, fits: bool) -> Path | None:
    """Return the folder of MNIST if `data` selects it; None if `data` selects another data set.

    Raises:
        BadInput: MNIST is missing, or does not fit the network.
    """
    if data == "cifar10" or (data == "auto" and not fits):
        return None
    path = data_folder() if data in ("auto", "mnist") else _path(data)
    folder = mnist.locate(path)
    if folder is None and data == "mnist" and fits:
        raise BadInput(f"MNIST not found in {path}; {mnist.HINT}")
    # A folder of data sets may contain another one that fits the network.
    if not fits and (data == "mnist" or (folder is not None and folder == path)):
        raise BadInput(
            f"--data {data}: MNIST has images of {_format_shape(mnist.IMAGE_SHAPE)} in {mnist.CLASSES}"
            " classes, which do not fit this network; use --model mnist-cnn or mnist-mlp, or --data synthetic"
        )
    return folder if fits else None


def _is_user_image_folder(data: str) -> bool:
    """Return True if `data` is the path of a folder of the user's own images."""
    path = _path(data)
    is_dataset_name = data in DATASET_NAMES
    return not is_dataset_name and is_image_folder(path) and cifar10.locate(path) is None


def _make_synthetic(
    seed: int, scratch: Path, split: Split, shape: Shape, classes: int, vocabulary: int | None = None
) -> Dataset:
    count = synthetic.image_count(split, shape)
    unit = "images" if len(shape) == 3 else "sequences"
    shape_text = "" if shape == IMAGE_SHAPE else f" of {_format_shape(shape)}"
    vocabulary_text = "" if vocabulary is None else f" from {vocabulary:,} tokens"
    source = f"{count:,} synthetic {unit}{shape_text}{vocabulary_text}, seed {seed}"
    file = scratch / f"synthetic-{split}" / "images.u8"
    dtype = np.uint8 if vocabulary is None else np.int32

    def chunks() -> Iterator[Chunk]:
        if vocabulary is not None:
            return synthetic.token_chunks(count, seed, split, shape[0], vocabulary, classes)
        if len(shape) == 2:
            return synthetic.character_chunks(count, seed, split, shape, classes)
        return synthetic.image_chunks(count, seed, split, shape, classes)

    def build_dataset() -> str:
        return _collect("synthetic", source, chunks(), file, shape, dtype=dtype).sha256

    cache = FileCache(platformdirs.user_cache_path("polybench") / "synthetic", str, _CACHE_BYTES)
    names = ("synthetic.py", "array_chunks.py")
    sources = (Path(__file__).with_name(name) for name in names)
    key = cache_key(count, seed, split, shape, classes, vocabulary, *sources)
    digest = cache.fetch(key, file.parent, build_dataset)
    return Dataset("synthetic", source, *map_chunks(file, count, shape, dtype), digest)


def _read_folder(folder: Path, scratch: Path, split: Split, shape: Shape, classes: int) -> Dataset:
    found = find_images(folder, split)
    if len(found.classes) != classes:
        names = ", ".join(found.classes[:10]) + (", ..." if len(found.classes) > 10 else "")
        raise BadInput(
            f"--data {folder} has {len(found.classes)} classes ({names}), but this network has {classes}; "
            "choose another --model or other folders"
        )
    size = len(found.files) * (math.prod(shape) + 1)
    file = scratch / f"images-{split}.u8"
    return _collect("images", str(folder), read_images(found, shape), file, shape, size)


def _collect(
    name: DatasetName,
    source: str,
    chunks: Iterator[Chunk],
    path: Path,
    shape: Shape,
    max_bytes: int = _MAX_BYTES,
    dtype: DTypeLike = np.uint8,
) -> Dataset:
    with check_free_space(path.parent, max_bytes):
        count = write_chunks(chunks, path)
    images, labels = map_chunks(path, count, shape, dtype)
    return Dataset(name, source, images, labels, dataset_sha256(images, labels))


def _format_shape(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _no_such_path(data: str) -> str:
    return f"--data {data}: no such file or folder: expected {_EXPECTED}"


def _no_cifar10(data: str) -> str:
    if data == "cifar10":
        return (
            f"CIFAR-10 not found in {data_folder()}; `polybench data fetch` downloads it, "
            "or give --data the path of an archive"
        )
    path = _path(data)
    if not path.exists():
        archive, folder = cifar10.ARCHIVES[0], cifar10.FOLDERS[0]
        return f"{_no_such_path(data)}; CIFAR-10 is {archive} or {folder} ({cifar10.HINT})"
    return (
        f"--data {data}: CIFAR-10 not found: expected a file such as {cifar10.FOLDERS[0]}/data_batch_1.bin;"
        f" {cifar10.HINT}"
    )
