"""CIFAR-10 in its two published versions, each as an archive or as the unpacked folder.

binary: `data_batch_1.bin` to `_5.bin`, `test_batch.bin`; a record is a 1-byte label, then 3,072 bytes of
pixels.
python: the same names without `.bin`; pickled dictionaries with `data` (n, 3072) uint8 and a list of
`labels`.
Pixels are red, green, blue planes in row order, which is NCHW. The official files have 10,000 images each;
smaller files are accepted if the training files have equally many.
https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import numpy as np

from polybench.data.array_chunks import CLASSES, IMAGE_BYTES, IMAGE_SHAPE, Chunk, Pixels, Split
from polybench.data.cifar10_pickle import read_pickle
from polybench.data.disk import exists, is_file
from polybench.errors import BadInput

Batches = Iterator[tuple[Pixels, Pixels]]

FILES: dict[Split, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
HINT = "`polybench data fetch` downloads CIFAR-10"

OFFICIAL_ARCHIVES = (
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
"""SHA-256 of `ARCHIVES`, which torchvision (its Ruby port), GoMLX and Keras use to download the same files.
"""

_OFFICIAL_FILES = {
    "data_batch_1": ("5dd7e06a14cb22eb9f671a540d1b7c25", "c99cafc152244af753f735de768cd75f"),
    "data_batch_2": ("5ea93a67294ea407fff1d09f752e9692", "d4bba439e000b95fd0a9bffe97cbabec"),
    "data_batch_3": ("942cd6a4bcdd0dd3c604fbe906cb4421", "54ebc095f3ab1f0389bbae665268c751"),
    "data_batch_4": ("ae636b3ba5c66a11e91e8cb52e771fcb", "634d18415352ddfa80567beed471001a"),
    "data_batch_5": ("53f37980c15c3d472c316c40844f3f0d", "482c414d41f54cd18b22e5b47cb7c3cb"),
    "test_batch": ("803d5f7f4d78ea53de84dbe85f74fb6d", "40351d587109b95175f43aff81a1287e"),
}
"""MD5 of the binary and of the python version; the latter are from torchvision (datasets/cifar.py)."""

_RECORD = 1 + IMAGE_BYTES
_OFFICIAL_BYTES = 10_000 * _RECORD
_RECORDS_PER_CHUNK = 1000
_READ_BYTES = 1 << 20


class _Member(NamedTuple):
    """A file of the data set: `name` without `.bin`, `location` for messages, `size` in bytes."""

    name: str
    binary: bool
    location: str
    size: int
    content: IO[bytes]


def locate(path: Path) -> Path | None:
    """Return the archive or the folder with the files that `path` is or contains; None without either."""
    if is_file(path):
        return path
    if not exists(path) or not path.is_dir():
        return None
    candidates = (path, *(path / name for name in FOLDERS))
    folders = (place for place in candidates if next(place.glob("data_batch_*"), None))
    archives = (path / name for name in ARCHIVES if (path / name).is_file())
    return next(folders, None) or next(archives, None)


def read(source: Path, split: Split) -> Iterator[Chunk]:
    """Yield the images of one split in chunks, in the order of the archive's files.

    Args:
        source: result of `locate`.
        split: "train" or "test".

    Raises:
        BadInput: a file is missing, truncated, damaged or not CIFAR-10; the message names it.
    """
    try:
        members = _folder_members if source.is_dir() else _archive_members
        yield from _chunks(members(source, FILES[split]), FILES[split], source)
    except gzip.BadGzipFile as error:
        raise BadInput(f"{source} is not a .tar.gz archive ({error}); {HINT}") from error
    except (EOFError, zlib.error, tarfile.TarError) as error:
        raise BadInput(f"{source} is truncated, damaged or not a .tar.gz archive ({error}); {HINT}") from error
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {HINT}") from error


def is_official_archive(source: Path, split: Split) -> bool:
    """Return True if the files of this split are, bit for bit, the published ones.

    Args:
        source: result of `locate`; an archive is compared as a whole, since its members are not unpacked.
        split: "train" or "test".
    """
    if source.is_file():
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() in OFFICIAL_ARCHIVES
    return all(_is_official_file(source, name) for name in FILES[split])


def _is_official_file(folder: Path, name: str) -> bool:
    binary, python = folder / f"{name}.bin", folder / name
    path = binary if binary.is_file() else python
    with path.open("rb") as file:
        found = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False))
    return found.hexdigest() in _OFFICIAL_FILES[name]


def _chunks(members: Iterator[_Member], files: tuple[str, ...], source: Path) -> Iterator[Chunk]:
    locations: dict[str, tuple[str, int]] = {}
    for member in members:
        if member.name in locations:
            raise BadInput(f"{member.location}: duplicate file; {HINT}")
        count, batches = _read_binary(member) if member.binary else _read_python(member)
        _check_count(member, count, locations)
        locations[member.name] = (member.location, count)
        read = 0
        for images, labels in batches:
            _check_labels(labels, read, member.location)
            yield Chunk(files.index(member.name) * count + read, images, labels)
            read += len(images)
    missing = [name for name in files if name not in locations]
    if missing:
        names = ", ".join(missing)
        raise BadInput(f"{source} is not CIFAR-10, or incomplete: {names} missing; {HINT}")


def _check_count(member: _Member, count: int, locations: dict[str, tuple[str, int]]) -> None:
    """Raise if files differ in their number of images, since an image's index follows from it."""
    for place, expected in locations.values():
        if count != expected:
            (fewer, short), (more, full) = sorted(((member.location, count), (place, expected)), key=itemgetter(1))
            raise BadInput(f"{fewer} is truncated: {short} images, {more} has {full}; {HINT}")


def _folder_members(folder: Path, files: tuple[str, ...]) -> Iterator[_Member]:
    binary = any(folder.glob("data_batch_*.bin"))
    for name in files:
        path = folder / (f"{name}.bin" if binary else name)
        if path.is_file():
            with path.open("rb") as content:
                yield _Member(name, binary, str(path), path.stat().st_size, content)


def _archive_members(archive: Path, files: tuple[str, ...]) -> Iterator[_Member]:
    """Yield members from start to end without extracting them, so that their names can do no harm."""
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        for info in tar:
            path = PurePosixPath(info.name)
            content = tar.extractfile(info) if info.isfile() else None
            if content and path.suffix in ("", ".bin") and path.stem in files:
                location = f"{archive}: {info.name}"
                with content:
                    yield _Member(path.stem, path.suffix == ".bin", location, info.size, content)
        # The checksum is at the very end.
        while stream.read(_READ_BYTES):
            pass


def _read_binary(member: _Member) -> tuple[int, Batches]:
    count, remainder = divmod(member.size, _RECORD)
    if remainder or not count:
        raise BadInput(
            f"{member.location} is truncated or not CIFAR-10: {member.size} bytes, expected"
            f" {_OFFICIAL_BYTES} (records of {_RECORD}); {HINT}"
        )
    return count, _binary_batches(member)


def _binary_batches(member: _Member) -> Batches:
    remaining = member.size
    while remaining:
        size = min(remaining, _RECORDS_PER_CHUNK * _RECORD)
        block = member.content.read(size)
        if len(block) < size:
            found = member.size - remaining + len(block)
            raise BadInput(f"{member.location} is truncated: {found} bytes, expected {member.size}; {HINT}")
        records = np.frombuffer(block, np.uint8).reshape(-1, _RECORD)
        yield records[:, 1:].reshape(-1, *IMAGE_SHAPE), records[:, 0]
        remaining -= size


def _read_python(member: _Member) -> tuple[int, Batches]:
    try:
        # From a file, 31 MB are read into one string; an archive would need three of them.
        with tempfile.TemporaryFile() as file:
            shutil.copyfileobj(member.content, file)
            file.seek(0)
            pixels, labels = read_pickle(file, member.size)
    except ValueError as error:
        raise BadInput(f"{member.location} is truncated or not CIFAR-10: {error}; {HINT}") from error
    return len(labels), _python_batches(pixels, labels)


def _python_batches(pixels: Pixels, labels: Pixels) -> Batches:
    for start in range(0, len(labels), _RECORDS_PER_CHUNK):
        rows = slice(start, start + _RECORDS_PER_CHUNK)
        # Copies: a view would keep all of this file in memory while the next one is read.
        yield pixels[rows].reshape(-1, *IMAGE_SHAPE).copy(), labels[rows]


def _check_labels(labels: Pixels, first: int, location: str) -> None:
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise BadInput(
            f"{location} is damaged or not CIFAR-10: record {first + wrong[0]} has label {labels[wrong[0]]}, "
            f"labels are 0 to {CLASSES - 1}; {HINT}"
        )
