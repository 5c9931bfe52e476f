"""Training images and sequences: found or made once, in one file that every process maps.

ADD A DATA SET: a file whose generator gives `Chunk`s, and a line in `open_dataset`.
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

from polybench.core.errors import BadInput
from polybench.data import cifar10, imdb, imdb_reviews, mnist, synthetic, synthetic_sequences
from polybench.data.chunks import (
    CLASSES,
    IMAGE_BYTES,
    IMAGE_SHAPE,
    Chunk,
    Inputs,
    Pixels,
    Shape,
    Split,
    map_chunks,
    sha256,
    write_chunks,
)
from polybench.data.disk import room
from polybench.data.file_cache import FileCache, key_of
from polybench.data.image_folder import find_images, is_image_folder, read_images

_LARGEST_BYTES = 50_000 * (IMAGE_BYTES + 1)

_KEPT_BYTES = 1 << 29
"""Of synthetic images that are kept between studies: making 50,000 takes five times as long as reading."""

Name = Literal["cifar10", "images", "imdb", "mnist", "synthetic"]


NAMES = ("auto", "cifar10", "imdb", "mnist", "synthetic")
"""Of `--data`; all else is a path, also where a folder is called like one of these."""
_GIVE = f"{', '.join(NAMES)}, or the path of an archive or a folder"


class Dataset(NamedTuple):
    """Labelled images or sequences, read-only, memory-mapped; `images` are as in `chunks.Chunk`.

    Images are NCHW; `labels` is (N,) uint8, from 0.
    `source` says where they came from; `sha256` is over the images' bytes, then the labels'.
    `official` is false for what is called CIFAR-10, has its format, and is something else.
    """

    name: Name
    source: str
    images: Inputs
    labels: Pixels
    sha256: str
    official: bool = True


def data_folder() -> Path:
    """Where downloaded data sets are kept; the environment variable POLYBENCH_DATA overrides it."""
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
    """Read or make a data set, holding no more than a few megabytes of it in this process, but IMDb's text.

    Args:
        data: `auto` (CIFAR-10 or MNIST if it is in the data folder and fits, else synthetic), `synthetic`,
            `cifar10`, `mnist`, `imdb`, the path of an official archive or of the folder it unpacks to, of a
            folder of MNIST's files, or of a folder of images, one class a subfolder. A network that takes
            tokens has IMDb or synthetic ones.
        seed: of the synthetic images.
        scratch: folder for the mapped file, 154 MB for 50,000 images.
        split: "train" or "test".
        image_shape: what the network takes: (channels, height, width), (time, features), or tokens (time,).
        classes: what it tells apart.
        vocabulary: how many tokens it knows; None where it takes none.

    Raises:
        BadInput: there is no such data, it is no CIFAR-10 and no folder of images, the network takes other
            images or tells other classes apart, or `scratch` has no room for it.
    """
    if vocabulary is not None:
        return _open_tokens(data, seed, scratch, split, image_shape, classes, vocabulary)
    if data == "imdb":
        raise BadInput(
            f"--data {data}: reviews are tokens, and this network takes no tokens; try --model imdb-bilstm"
        )
    fits = (image_shape, classes) == (IMAGE_SHAPE, CLASSES)
    fits_mnist = (image_shape, classes) == (mnist.IMAGE_SHAPE, mnist.CLASSES)
    if data != "synthetic" and (folder := _mnist_folder(data, fits_mnist)) is not None:
        file = scratch / f"mnist-{split}.u8"
        return _collect("mnist", str(folder), mnist.read(folder, split), file, image_shape)
    if data == "synthetic" or (data == "auto" and not fits):
        return _make_synthetic(seed, scratch, split, image_shape, classes)
    if _in_colour(image_shape) and _is_own_folder(data):
        return _read_folder(_place(data), scratch, split, image_shape, classes)
    if not fits:
        raise BadInput(_misfit(data, image_shape, classes))
    source = cifar10.locate(data_folder() if data in ("auto", "cifar10") else _place(data))
    if source is None and data == "auto":
        return _make_synthetic(seed, scratch, split, image_shape, classes)
    if source is None:
        raise BadInput(_not_found(data))
    file = scratch / f"cifar10-{split}.u8"
    found = _collect("cifar10", str(source), cifar10.read(source, split), file, IMAGE_SHAPE)
    return found._replace(official=cifar10.is_official(source, split))


def _misfit(data: str, shape: Shape, classes: int) -> str:
    """Why there are no images for a network that does not take CIFAR-10's."""
    takes = f"this network takes {_by(shape)} in {classes} classes"
    if data not in NAMES and not _place(data).exists():
        return _no_such(data)
    if data not in NAMES and (shape, classes) == (mnist.IMAGE_SHAPE, mnist.CLASSES):
        return f"--data {data}: no MNIST there, and {takes}; {mnist.REMEDY}; or use --data synthetic"
    if not _in_colour(shape) and _is_own_folder(data):
        return f"--data {data}: a folder of images, in colour, and {takes}; use --data synthetic"
    return (
        f"--data {data}: CIFAR-10 has images of {_by(IMAGE_SHAPE)} in {CLASSES} classes, and {takes};"
        f" use --data synthetic{', or a folder of images' if _in_colour(shape) else ''}"
    )


def _in_colour(shape: Shape) -> bool:
    return len(shape) == 3 and shape[0] == 3


def expected_images(data: str, split: Split, image_shape: Shape = IMAGE_SHAPE) -> int:
    """About how many images `open_dataset` will find, without reading one: as many as are synthetic.

    CIFAR-10 has as many, MNIST a fifth more; of reviews IMDb has half of them to train on.

    Raises:
        BadInput: `data` is a folder of images without this split.
    """
    if _in_colour(image_shape) and _is_own_folder(data):
        return len(find_images(_place(data), split).files)
    return synthetic.count(split, image_shape)


def _place(data: str) -> Path:
    try:
        path = Path(data).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as error:  # no such user, a name that no file can have
        raise BadInput(f"--data {data[:80]}: {error}"[:200]) from None
    if not data:
        raise BadInput(f"--data is empty; give {_GIVE}")
    return path


def _open_tokens(
    data: str, seed: int, scratch: Path, split: Split, shape: Shape, classes: int, vocabulary: int
) -> Dataset:
    """IMDb, or synthetic tokens; as in `open_dataset`."""
    if data == "synthetic":
        return _make_synthetic(seed, scratch, split, shape, classes, vocabulary)
    if data in ("cifar10", "mnist"):
        raise BadInput(f"--data {data}: images, and this network takes tokens; give imdb or synthetic")
    place = data_folder() if data in ("auto", "imdb") else _place(data)
    source = imdb_reviews.locate(place)
    fits = classes == imdb.CLASSES and vocabulary >= imdb.FEWEST_TOKENS
    if data == "auto" and (source is None or not fits):
        return _make_synthetic(seed, scratch, split, shape, classes, vocabulary)
    if source is None:
        raise BadInput(
            f"--data {data}: there is no IMDb in {place}; {imdb_reviews.REMEDY}; or use --data synthetic"
        )
    if classes != imdb.CLASSES:
        raise BadInput(f"--data {data}: IMDb has {imdb.CLASSES} classes, this network tells {classes} apart")
    chunks = imdb.read(source, split, shape[0], vocabulary)
    return _collect("imdb", str(source), chunks, scratch / f"imdb-{split}.i32", shape, dtype=np.int32)


def _mnist_folder(data: str, fits: bool) -> Path | None:
    """Where MNIST is that is asked for; None where something else is.

    Raises:
        BadInput: it is not there, or does not fit.
    """
    if data == "cifar10" or (data == "auto" and not fits):
        return None
    place = data_folder() if data in ("auto", "mnist") else _place(data)
    folder = mnist.locate(place)
    if folder is None and data == "mnist" and fits:
        raise BadInput(f"there is no MNIST in {place}; {mnist.REMEDY}")
    # A folder of data sets may have another one for a network that does not take MNIST.
    if not fits and (data == "mnist" or (folder is not None and folder == place)):
        raise BadInput(
            f"--data {data}: MNIST has images of {_by(mnist.IMAGE_SHAPE)} in {mnist.CLASSES} classes, and the"
            " network takes others; give mnist-cnn or mnist-mlp for --model, or --data synthetic"
        )
    return folder if fits else None


def _is_own_folder(data: str) -> bool:
    """Whether it is a folder of somebody's images."""
    path = _place(data)
    named = data in NAMES
    return not named and is_image_folder(path) and cifar10.locate(path) is None


def _make_synthetic(
    seed: int, scratch: Path, split: Split, shape: Shape, classes: int, vocabulary: int | None = None
) -> Dataset:
    count = synthetic.count(split, shape)
    what = "images" if len(shape) == 3 else "sequences"
    size = "" if shape == IMAGE_SHAPE else f" of {_by(shape)}"
    known = "" if vocabulary is None else f" from {vocabulary:,} tokens"
    source = f"{count:,} synthetic {what}{size}{known}, seed {seed}"
    file = scratch / f"synthetic-{split}" / "images.u8"
    dtype = np.uint8 if vocabulary is None else np.int32

    def chunks() -> Iterator[Chunk]:
        if vocabulary is not None:
            return synthetic_sequences.token_chunks(count, seed, split, shape[0], vocabulary, classes)
        if len(shape) == 2:
            return synthetic_sequences.character_chunks(count, seed, split, shape, classes)
        return synthetic.chunks(count, seed, split, shape, classes)

    def make() -> str:
        return _collect("synthetic", source, chunks(), file, shape, dtype=dtype).sha256

    cache = FileCache(platformdirs.user_cache_path("polybench") / "synthetic", str, _KEPT_BYTES)
    names = ("synthetic.py", "synthetic_sequences.py", "chunks.py")
    sources = (Path(__file__).with_name(name) for name in names)
    key = key_of(count, seed, split, shape, classes, vocabulary, *sources)
    digest = cache.fetch(key, file.parent, make)
    return Dataset("synthetic", source, *map_chunks(file, count, shape, dtype), digest)


def _read_folder(folder: Path, scratch: Path, split: Split, shape: Shape, classes: int) -> Dataset:
    found = find_images(folder, split)
    if len(found.classes) != classes:
        names = ", ".join(found.classes[:10]) + (", ..." if len(found.classes) > 10 else "")
        raise BadInput(
            f"--data {folder} has {len(found.classes)} classes ({names}), this network tells {classes} "
            "apart; choose another --model or other folders"
        )
    size = len(found.files) * (math.prod(shape) + 1)
    file = scratch / f"images-{split}.u8"
    return _collect("images", str(folder), read_images(found, shape), file, shape, size)


def _collect(
    name: Name,
    source: str,
    chunks: Iterator[Chunk],
    path: Path,
    shape: Shape,
    largest_bytes: int = _LARGEST_BYTES,
    dtype: DTypeLike = np.uint8,
) -> Dataset:
    with room(path.parent, largest_bytes):
        count = write_chunks(chunks, path)
    images, labels = map_chunks(path, count, shape, dtype)
    return Dataset(name, source, images, labels, sha256(images, labels))


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _no_such(data: str) -> str:
    return f"--data {data}: no such file or folder; give {_GIVE}"


def _not_found(data: str) -> str:
    if data == "cifar10":
        return (
            f"there is no CIFAR-10 in {data_folder()}; `polybench data fetch` downloads it, "
            "or give --data the path of an archive"
        )
    path = _place(data)
    if not path.exists():
        return (
            f"{_no_such(data)}; CIFAR-10 is {cifar10.ARCHIVES[0]} or {cifar10.FOLDERS[0]} ({cifar10.REMEDY})"
        )
    return (
        f"--data {data}: no CIFAR-10 in this folder, expected {cifar10.FOLDERS[0]}/data_batch_1.bin "
        f"or the like; {cifar10.REMEDY}"
    )
