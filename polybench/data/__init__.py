"""Training images and sequences, each data set in one file that every process maps.

ADD A DATA SET: a file with a generator of `Chunk`s, and a row in `_PUBLISHED`.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import platformdirs
from numpy.typing import DTypeLike

from polybench.data import cifar10, imdb, mnist, synthetic, text
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
from polybench.data.disk import check_free_space, is_file
from polybench.data.file_cache import FileCache, cache_key
from polybench.data.image_folder import find_images, is_image_folder, read_images
from polybench.errors import BadInput

_MAX_BYTES = 50_000 * (IMAGE_BYTES + 1)

_CACHE_BYTES = 1 << 29
"""Size of the cache of synthetic images: generating 50,000 takes five times as long as reading them."""

DatasetName = Literal["cifar10", "images", "imdb", "mnist", "synthetic", "text"]


class Dataset(NamedTuple):
    """Labelled images or sequences, read-only and memory-mapped; `images` are as in `array_chunks.Chunk`.

    Images are NCHW; `labels` is (N,) uint8, starting at 0, or (N, time) with one for each position.
    `source` is their origin; `sha256` hashes the images' bytes, then the labels'.
    `is_official` is False for data in CIFAR-10's format whose files differ from the published ones.
    """

    name: DatasetName
    source: str
    images: Inputs
    labels: Pixels
    sha256: str
    is_official: bool = True


class _Inputs(NamedTuple):
    """The inputs that a network takes: one image (channels, height, width), one sequence of features or tokens."""

    shape: Shape
    classes: int
    vocabulary: int | None
    label_shape: Shape = ()

    @property
    def are_colour_images(self) -> bool:
        return len(self.shape) == 3 and self.shape[0] == 3

    def __str__(self) -> str:
        tokens = "" if self.vocabulary is None else f" from {self.vocabulary:,} tokens"
        classes = f"{self.classes} classes{' at each position' if self.label_shape else ''}"
        return f"{_format_shape(self.shape)}{tokens} in {classes}"


class _Published(NamedTuple):
    """A published data set: what it has, which networks can take it, where it is, and patterns of its files there."""

    title: str
    contents: str
    fits: Callable[[_Inputs], bool]
    locate: Callable[[Path], Path | None]
    files: tuple[str, ...]
    hint: str
    models: str


_PUBLISHED: dict[DatasetName, _Published] = {
    "cifar10": _Published(
        "CIFAR-10",
        "images of 3 x 32 x 32 in 10 classes",
        lambda inputs: inputs == _Inputs(IMAGE_SHAPE, CLASSES, None),
        cifar10.locate,
        ("data_batch_*", "test_batch*", "batches.meta*"),
        cifar10.HINT,
        "--model lenet",
    ),
    "mnist": _Published(
        "MNIST",
        "images of 1 x 28 x 28 in 10 classes",
        lambda inputs: inputs == _Inputs(mnist.IMAGE_SHAPE, mnist.CLASSES, None),
        mnist.locate,
        ("*-ubyte", "*-ubyte.gz"),
        mnist.HINT,
        "--model mnist-cnn or mnist-mlp",
    ),
    "imdb": _Published(
        "IMDb",
        f"reviews from at least {imdb.MIN_TOKENS} tokens in {imdb.CLASSES} classes",
        lambda inputs: (
            (inputs.vocabulary or 0) >= imdb.MIN_TOKENS and inputs.classes == imdb.CLASSES and not inputs.label_shape
        ),
        imdb.locate,
        ("train/*/*.txt", "test/*/*.txt"),
        imdb.HINT,
        "--model imdb-bilstm",
    ),
}

DATASET_NAMES = ("auto", *sorted((*_PUBLISHED, "synthetic")))
"""Names that `--data` accepts. Anything else is a path; a name wins over a folder of the same name."""
_EXPECTED = f"{', '.join(DATASET_NAMES)}, or the path of an archive, a folder or a text file"


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
    label_shape: Shape = (),
) -> Dataset:
    """Read or generate a data set; one file of it is in memory at a time, or IMDb's whole text.

    `data` is `auto` (the published data set that fits, if it is in the data folder, else synthetic), `synthetic`,
    `cifar10`, `mnist`, `imdb`, or a path: of an official archive or its unpacked folder, of a folder of MNIST's
    files, of a folder of images with one subfolder per class, or of a text file. The network takes `image_shape`:
    (channels, height, width), (time, features), or tokens (time,); its labels have `label_shape`. `scratch` receives
    the mapped file, 154 MB for 50,000 images.

    Raises:
        BadInput: the data does not exist, is not in a known format, does not fit the network, or `scratch`
            has too little space.
    """
    inputs = _Inputs(image_shape, classes, vocabulary, label_shape)
    if data == "synthetic":
        return _make_synthetic(seed, scratch, split, inputs)
    is_path = data not in DATASET_NAMES
    folder = _path(data) if is_path else data_folder()
    if inputs.are_colour_images and _is_user_image_folder(data):
        return _read_folder(folder, scratch, split, inputs)
    if is_path and is_file(folder) and (inputs.label_shape or folder.suffix == ".txt"):
        if not inputs.label_shape or inputs.vocabulary is None:
            raise BadInput(
                f"--data {data}: a text is for tokens with a prediction at each position, but this network takes"
                f" {inputs}; use --model char-gpt"
            )
        characters = text.read(folder, split, inputs.shape[0], inputs.vocabulary)
        file = scratch / f"text-{split}"
        return _collect("text", str(folder), characters, file, inputs.shape, dtype=np.int32, label_shape=label_shape)
    for name, published in _PUBLISHED.items():
        source = published.locate(folder) if is_path or data in ("auto", name) else None
        if source is not None and published.fits(inputs):
            return _read_published(name, source, scratch, split, inputs)
    if data == "auto":
        return _make_synthetic(seed, scratch, split, inputs)
    raise BadInput(f"--data {data}: {_problem(data, folder, inputs)}")


def data_files(path: Path) -> list[Path]:
    """Return the files that `open_dataset` reads at this path, and none of the others in a folder.

    Raises BadInput if there is no data set.
    """
    files: list[Path] = []
    for published in _PUBLISHED.values():
        if (source := published.locate(path)) is not None:
            files += [source, *(file for pattern in published.files for file in source.glob(pattern))]
    if _is_user_image_folder(str(path)):
        for split in get_args(Split):
            with contextlib.suppress(*([BadInput] if files or split == "test" else [])):
                files += find_images(path, split).files
    files = sorted({*filter(is_file, files)})
    if not files:
        raise BadInput(f"--data {path}: no data set found: expected {_EXPECTED}")
    return files


def _problem(data: str, folder: Path, inputs: _Inputs) -> str:
    """Explain why there is no data for a network that takes `inputs`."""
    if data not in DATASET_NAMES and not folder.exists():
        return f"no such file or folder: expected {_EXPECTED}"
    images = ", or a folder of images" if inputs.are_colour_images else ""
    for name, published in _PUBLISHED.items():
        if not published.fits(inputs) and (data == name or published.locate(folder) == folder):
            return (
                f"{published.title} has {published.contents}, but this network takes {inputs};"
                f" use {published.models}, or --data synthetic{images}"
            )
    for published in _PUBLISHED.values():
        if published.fits(inputs):
            return f"{published.title} not found in {folder}; {published.hint}; or use --data synthetic"
    return f"no data for a network that takes {inputs}; use --data synthetic{images}"


def _path(data: str) -> Path:
    try:
        path = Path(data).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as error:  # unknown user, invalid file name
        raise BadInput(f"--data {data[:80]}: {error}"[:200]) from None
    if not data:
        raise BadInput(f"--data is empty: expected {_EXPECTED}")
    return path


def _is_user_image_folder(data: str) -> bool:
    """Return True if `data` is the path of a folder of the user's own images."""
    return data not in DATASET_NAMES and is_image_folder(_path(data)) and cifar10.locate(_path(data)) is None


def _read_published(name: DatasetName, source: Path, scratch: Path, split: Split, inputs: _Inputs) -> Dataset:
    file = scratch / f"{name}-{split}"
    if name == "imdb":
        reviews = imdb.read(source, split, inputs.shape[0], inputs.vocabulary or 0)
        return _collect(name, str(source), reviews, file, inputs.shape, dtype=np.int32)
    images = (mnist if name == "mnist" else cifar10).read(source, split)
    found = _collect(name, str(source), images, file, inputs.shape)
    return found._replace(is_official=name != "cifar10" or cifar10.is_official(source, split))


def _make_synthetic(seed: int, scratch: Path, split: Split, inputs: _Inputs) -> Dataset:
    shape, classes, vocabulary, label_shape = inputs
    count = synthetic.image_count(split, shape)
    unit = "images" if len(shape) == 3 else "sequences"
    shape_text = "" if shape == IMAGE_SHAPE else f" of {_format_shape(shape)}"
    vocabulary_text = "" if vocabulary is None else f" from {vocabulary:,} tokens"
    source = f"{count:,} synthetic {unit}{shape_text}{vocabulary_text}, seed {seed}"
    file = scratch / f"synthetic-{split}" / "images.u8"
    dtype = np.uint8 if vocabulary is None else np.int32

    def chunks() -> Iterator[Chunk]:
        match shape, label_shape:
            case (length,), (positions,) if vocabulary == classes and positions == length:
                return synthetic.text_chunks(count, seed, split, length, classes)
            case (_, features), () if features == classes:
                return synthetic.character_chunks(count, seed, split, shape)
            case (length,), _:
                made = synthetic.token_chunks(count, seed, split, length, vocabulary or 0, classes)
            case (_, _), _:
                made = synthetic.feature_chunks(count, seed, split, shape, classes)
            case _:
                made = synthetic.image_chunks(count, seed, split, shape, classes)
        return synthetic.with_labels_of_positions(made, *label_shape) if label_shape else made

    def build_dataset() -> str:
        return _collect("synthetic", source, chunks(), file, shape, dtype=dtype, label_shape=label_shape).sha256

    cache = FileCache(platformdirs.user_cache_path("polybench") / "synthetic", str, _CACHE_BYTES)
    sources = (Path(__file__).with_name(name) for name in ("synthetic.py", "array_chunks.py"))
    key = cache_key(count, seed, split, shape, classes, vocabulary, label_shape, *sources)
    digest = cache.fetch(key, file.parent, build_dataset)
    return Dataset("synthetic", source, *map_chunks(file, count, shape, dtype, label_shape), digest)


def _read_folder(folder: Path, scratch: Path, split: Split, inputs: _Inputs) -> Dataset:
    shape, classes, *_ = inputs
    found = find_images(folder, split)
    if len(found.classes) != classes:
        names = ", ".join(found.classes[:10]) + (", ..." if len(found.classes) > 10 else "")
        raise BadInput(
            f"--data {folder} has {len(found.classes)} classes ({names}), but this network has {classes}; "
            "choose another --model or other folders"
        )
    size = len(found.files) * (math.prod(shape) + 1)
    return _collect("images", str(folder), read_images(found, shape), scratch / f"images-{split}", shape, size)


def _collect(
    name: DatasetName,
    source: str,
    chunks: Iterator[Chunk],
    path: Path,
    shape: Shape,
    max_bytes: int = _MAX_BYTES,
    dtype: DTypeLike = np.uint8,
    label_shape: Shape = (),
) -> Dataset:
    with check_free_space(path.parent, max_bytes):
        count = write_chunks(chunks, path)
    images, labels = map_chunks(path, count, shape, dtype, label_shape)
    return Dataset(name, source, images, labels, dataset_sha256(images, labels))


def _format_shape(shape: Shape) -> str:
    return " x ".join(map(str, shape))
