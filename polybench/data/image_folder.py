"""A user's own images: a folder with one subfolder for each class, read with Pillow, resized once.

Classes are numbered by the order of their names, images are ordered by class and path. A folder that has a
subfolder `train` has its classes there, and in `test` those of the test images. Each image becomes RGB and
exactly as large as the network's input, whatever its proportions, by Pillow's bilinear filter, which
averages over all pixels where it makes an image smaller.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polybench.core.errors import BadInput
from polybench.data.chunks import Chunk, Pixels, Shape, Split

_AT_ONCE = 64
"""Images read side by side: Pillow decodes and resizes without Python's global lock."""
_MOST_PIXELS = 64 << 20
"""Of one image: a file of half a megabyte may hold far more, and each is decoded as a whole."""


class ImageFolder(NamedTuple):
    """The image files, and the number of each one's class in the sorted `classes`."""

    files: list[Path]
    labels: list[int]
    classes: list[str]


def is_image_folder(folder: Path) -> bool:
    """Whether `folder` has subfolders."""
    return folder.is_dir() and bool(_subfolders(folder))


def find_images(folder: Path, split: Split) -> ImageFolder:
    """Look what is there, without opening an image; files that are no images by their names are left out.

    Raises:
        BadInput: Pillow is missing, there are no images of this split, or a class has none.
    """
    root = _root(folder, split)
    extensions = _extensions()
    classes = _subfolders(root)
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(path for path in (root / name).rglob("*") if path.suffix.lower() in extensions)
        if not found:
            raise BadInput(f"--data {folder}: no image in {root / name}; each subfolder is a class")
        files += found
        labels += [label] * len(found)
    return ImageFolder(files, labels, classes)


def read_images(images: ImageFolder, shape: Shape) -> Iterator[Chunk]:
    """All images in order, each (3, height, width) as `shape` says.

    Raises:
        BadInput: a file is no image that Pillow can read; the message names it.
    """
    with ThreadPoolExecutor() as pool:
        for first in range(0, len(images.files), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            with warnings.catch_warnings():  # Pillow's, of damaged metadata: the pixels are what counts
                warnings.simplefilter("ignore")
                pixels = list(pool.map(lambda path: _read(path, shape), images.files[some]))
            yield Chunk(first, np.stack(pixels), np.array(images.labels[some], np.uint8))


def _read(path: Path, shape: Shape) -> Pixels:
    from PIL import Image

    _, height, width = shape
    if not path.is_file():  # a pipe would be waited for, a device may never end
        raise BadInput(f"{path} is no regular file; remove it")
    try:
        with Image.open(path) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise BadInput(
                    f"{path} has {image.width} x {image.height} pixels, at most {_MOST_PIXELS:,} are read; "
                    "make it smaller"
                )
            resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadInput(f"{path} is no image that Pillow can read: {error}; mend or remove it") from error
    return np.asarray(resized).transpose(2, 0, 1)


def _root(folder: Path, split: Split) -> Path:
    if not (folder / "train").is_dir():
        if split == "train":
            return folder
        raise BadInput(
            f"--data {folder} has no test images; put the classes' folders into {folder / 'train'} and "
            f"those of the test images into {folder / 'test'}"
        )
    if not is_image_folder(folder / split):
        raise BadInput(f"--data {folder}: there are no folders of images in {folder / split}")
    return folder / split


def _subfolders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _extensions() -> frozenset[str]:
    try:
        from PIL import Image
    except ImportError:
        raise BadInput(
            "a folder of images is read with Pillow, which is not installed; pip install 'polybench[images]'"
        ) from None
    return frozenset(Image.registered_extensions())
