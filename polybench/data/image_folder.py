"""User images: a folder with one subfolder per class, read with Pillow and resized once.

Classes are numbered in the order of their names; images are ordered by class and path. If the folder has a
subfolder `train`, this contains the classes, and `test` contains the test images' classes. Each image is
converted to RGB and to the network's input size, ignoring its aspect ratio. Pillow's bilinear filter averages
over all pixels if it reduces an image.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polybench.data.array_chunks import Chunk, Pixels, Shape, Split
from polybench.errors import BadInput, install_command

_BATCH_IMAGES = 64
"""Images read in parallel: Pillow decodes and resizes without Python's global lock."""
_MAX_PIXELS = 64 << 20
"""Maximum size of an image: a file of half a megabyte may contain far more pixels, and is decoded as a whole.
"""


class ImageFolder(NamedTuple):
    """The image files, and the index of each one's class in the sorted `classes`."""

    files: list[Path]
    labels: list[int]
    classes: list[str]


def is_image_folder(folder: Path) -> bool:
    """Return True if `folder` has subfolders."""
    return folder.is_dir() and bool(_subfolders(folder))


def find_images(folder: Path, split: Split) -> ImageFolder:
    """List the images without opening them; files whose names are not those of images are ignored.

    Raises BadInput if Pillow is missing, or this split or a class has no images.
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
    """Yield all images in order, each of `shape` (3, height, width); BadInput names a file that Pillow cannot read."""
    with ThreadPoolExecutor() as pool:
        for first in range(0, len(images.files), _BATCH_IMAGES):
            batch = slice(first, first + _BATCH_IMAGES)
            with warnings.catch_warnings():  # Pillow warns about damaged metadata; only the pixels matter
                warnings.simplefilter("ignore")
                pixels = list(pool.map(lambda path: _read(path, shape), images.files[batch]))
            yield Chunk(first, np.stack(pixels), np.array(images.labels[batch], np.uint8))


def _read(path: Path, shape: Shape) -> Pixels:
    from PIL import Image

    _, height, width = shape
    if not path.is_file():  # a pipe may block, a device may never end
        raise BadInput(f"{path} is not a regular file; remove it")
    try:
        with Image.open(path) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise BadInput(
                    f"{path} has {image.width} x {image.height} pixels: expected at most {_MAX_PIXELS:,}; "
                    "make it smaller"
                )
            resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadInput(f"Pillow cannot read {path}: {error}; fix or remove it") from error
    return np.asarray(resized).transpose(2, 0, 1)


def _root(folder: Path, split: Split) -> Path:
    if not (folder / "train").is_dir():
        if split == "train":
            return folder
        raise BadInput(
            f"--data {folder} has no test images; move the classes' folders to {folder / 'train'} and "
            f"those of the test images to {folder / 'test'}"
        )
    if not is_image_folder(folder / split):
        raise BadInput(f"--data {folder}: no folders of images in {folder / split}")
    return folder / split


def _subfolders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _extensions() -> frozenset[str]:
    try:
        from PIL import Image
    except ImportError:
        raise BadInput(
            f"Pillow, which reads folders of images, is not installed; {install_command('images')}"
        ) from None
    return frozenset(Image.registered_extensions())
