"""CIFAR-10: download, verification and reading of its two published versions, as an archive or a folder.

binary: `data_batch_1.bin` to `_5.bin`, `test_batch.bin`; a record is a 1-byte label, then 3,072 bytes of
pixels.
python: the same names without `.bin`; pickled dictionaries with `data` (n, 3072) uint8 and a list of
`labels`.
Pixels are red, green, blue planes in row order, which is NCHW. The official files have 10,000 images each;
smaller files are accepted if the training files have equally many.
https://www.cs.toronto.edu/~kriz/cifar.html

A pickle is a program, and a small archive can unpack to terabytes. So polybench opens an archive or a pickle only if
its checksum is that of the official one. Binary files of a folder are plain bytes: those of other images are read.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import numpy as np

from polybench.data.array_chunks import CLASSES, IMAGE_BYTES, IMAGE_SHAPE, Chunk, Pixels, Split
from polybench.data.disk import check_free_space, exists, is_file, only_process, open_regular_file, read_regular_file
from polybench.errors import BadInput

Version = Literal["binary", "python"]


class PublishedArchive(NamedTuple):
    """A published file: its name, its SHA-256, and the folder that it unpacks to."""

    name: str
    sha256: str
    folder: str

    @property
    def url(self) -> str:
        """Location at its authors' site."""
        return f"https://www.cs.toronto.edu/~kriz/{self.name}"


ARCHIVES: dict[Version, PublishedArchive] = {
    "binary": PublishedArchive(
        "cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "cifar-10-batches-bin",
    ),
    "python": PublishedArchive(
        "cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        "cifar-10-batches-py",
    ),
}
"""The hashes are those that torchvision (its Ruby port), GoMLX and Keras use to download the same files."""

FILES: dict[Split, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
HINT = "`polybench data fetch` downloads CIFAR-10"

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

_UNPACKED = ".fetch-"
"""Start of the name of a temporary folder."""
_FETCHED_BYTES = 360_000_000
"""An archive of 170 MB, and 184 MB unpacked."""
_TIMEOUT_SECONDS = 30

_MAX_FILE_BYTES = 64 << 20
"""The official files have 31 MB."""


class _File(NamedTuple):
    """A file's name without `.bin`, its `location` for messages, pixels (n, 3072), labels (n,)."""

    name: str
    location: str
    pixels: Pixels
    labels: Pixels


def locate(path: Path) -> Path | None:
    """Return the archive or the folder with the files that `path` is or contains; None without either."""
    if is_file(path):
        return path
    if not exists(path) or not path.is_dir():
        return None
    candidates = (path, *(path / published.folder for published in ARCHIVES.values()))
    folders = (place for place in candidates if next(place.glob("data_batch_*"), None))
    archives = (path / published.name for published in ARCHIVES.values() if (path / published.name).is_file())
    return next(folders, None) or next(archives, None)


def read(source: Path, split: Split) -> Iterator[Chunk]:
    """Yield the images of one split of a source that `locate` found, in chunks, in the order of the archive's files.

    Raises:
        BadInput: a file is missing, truncated, damaged or not CIFAR-10, or an archive or a pickle is not the official
            one; the message names it.
    """
    read_files = _read_folder if source.is_dir() else _read_archive
    try:
        yield from _chunks(read_files(source, FILES[split]), FILES[split], source)
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or source}: {error.strerror or error}; {HINT}") from error


def is_official(source: Path, split: Split) -> bool:
    """Return True if the files of this split, which `read` has accepted, are bit for bit the published ones."""
    if not _is_binary_folder(source):
        return True  # `read` refuses all others
    return all(_md5((source / f"{name}.bin").read_bytes()) == _OFFICIAL_FILES[name][0] for name in FILES[split])


class VerifiedArchive(NamedTuple):
    """Result of `verify`: images in each split, and whether they are, bit for bit, the published ones."""

    source: Path
    images: dict[Split, int]
    is_official: bool


def verify(path: Path) -> VerifiedArchive:
    """Read both splits of the CIFAR-10 that `path` is or contains; raise BadInput as `read` does."""
    source = locate(path)
    if source is None:
        raise BadInput(f"CIFAR-10 not found in {path}; {HINT}")
    splits: tuple[Split, ...] = ("train", "test")
    images = {split: sum(len(chunk.labels) for chunk in read(source, split)) for split in splits}
    return VerifiedArchive(source, images, all(is_official(source, split) for split in splits))


def fetch(version: Version, folder: Path) -> Path:
    """Download one version to `folder` and unpack it, unless it is already there; return the unpacked folder.

    Raises:
        BadInput: the network is unreachable, the disk is too small, or the file is not the published one.
    """
    published = ARCHIVES[version]
    target = folder / published.folder
    if target.is_dir():
        verify(target)
        return target
    with check_free_space(folder, _FETCHED_BYTES), only_process(folder):
        if not target.is_dir():  # otherwise another process has fetched it meanwhile
            for left in folder.glob(f"{_UNPACKED}*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            # The temporary folder is next to the target, so that the rename stays on one disk.
            with tempfile.TemporaryDirectory(dir=folder, prefix=_UNPACKED) as unpacked:
                with tarfile.open(_download(published, folder)) as archive:
                    archive.extractall(unpacked, filter="data")
                verify(Path(unpacked))
                (Path(unpacked) / target.name).rename(target)
    return target


def _download(published: PublishedArchive, folder: Path) -> Path:
    """Download an archive, unless it is there; its checksum is verified in either case."""
    import pooch

    # Only the progress bar prints, and only to a terminal; the command reports the result.
    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_TIMEOUT_SECONDS)
    url, known_hash = published.url, f"sha256:{published.sha256}"
    manual_hint = f"download {url} manually and pass the file's path to --data"
    try:
        return Path(pooch.retrieve(url, known_hash, published.name, folder, downloader=downloader))
    except OSError as error:
        # requests raises OSErrors without a number; those with a number come from the disk.
        if error.errno is not None:
            raise
        problem = f"cannot download {url} ({type(error).__name__}): check the network"
        raise BadInput(f"{problem}, or {manual_hint}") from error
    except ValueError as error:  # after OSError: an invalid proxy URL raises an error of both types
        raise BadInput(f"the file from {url} is not CIFAR-10 ({error}); try again, or {manual_hint}") from error


def _chunks(files: Iterator[_File], names: tuple[str, ...], source: Path) -> Iterator[Chunk]:
    locations: dict[str, tuple[str, int]] = {}
    for name, location, pixels, labels in files:
        count = len(labels)
        for place, expected in locations.values():  # an image's index follows from the count
            if count != expected:
                (fewer, short), (more, full) = sorted(((location, count), (place, expected)), key=itemgetter(1))
                raise BadInput(f"{fewer} is truncated: {short} images, {more} has {full}; {HINT}")
        locations[name] = (location, count)
        wrong = np.flatnonzero(labels >= CLASSES)
        if wrong.size:
            raise BadInput(
                f"{location} is damaged or not CIFAR-10: record {wrong[0]} has label"
                f" {labels[wrong[0]]}, labels are 0 to {CLASSES - 1}; {HINT}"
            )
        yield Chunk(names.index(name) * count, pixels.reshape(-1, *IMAGE_SHAPE), labels)
    missing = [name for name in names if name not in locations]
    if missing:
        raise BadInput(f"{source} is not CIFAR-10, or incomplete: {', '.join(missing)} missing; {HINT}")


def _is_binary_folder(source: Path) -> bool:
    return any(source.glob("data_batch_*.bin"))


def _read_folder(folder: Path, names: tuple[str, ...]) -> Iterator[_File]:
    binary = _is_binary_folder(folder)
    for name in names:
        path = folder / (f"{name}.bin" if binary else name)
        if path.is_file():
            content = read_regular_file(path, _MAX_FILE_BYTES)
            if not binary and _md5(content) != (expected := _OFFICIAL_FILES[name][1]):
                raise BadInput(
                    f"{path} is not CIFAR-10's official {name}, and polybench opens no other pickle: its MD5 is"
                    f" {_md5(content)}, expected {expected}; {HINT}, and other images are read from a folder in the"
                    " binary format"
                )
            yield _File(name, str(path), *(_parse_binary(content, path) if binary else _parse_pickle(content)))


def _read_archive(archive: Path, names: tuple[str, ...]) -> Iterator[_File]:
    with open_regular_file(archive) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found not in {published.sha256 for published in ARCHIVES.values()}:
            alike = [published for published in ARCHIVES.values() if published.name == archive.name]
            expected = " or ".join(f"{one.sha256} ({one.name})" for one in alike or ARCHIVES.values())
            raise BadInput(
                f"{archive} is not an official archive of CIFAR-10, and polybench opens no other: its SHA-256 is"
                f" {found}, expected {expected}; {HINT}, and other images are read from a folder in the binary format"
            )
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            for info in tar:
                path = PurePosixPath(info.name)
                member = tar.extractfile(info) if path.stem in names else None
                if member is not None:
                    content, location = member.read(), f"{archive}: {info.name}"
                    arrays = _parse_pickle(content) if path.suffix == "" else _parse_binary(content, location)
                    yield _File(path.stem, location, *arrays)


def _parse_binary(content: bytes, location: object) -> tuple[Pixels, Pixels]:
    """Return pixels (n, 3072) and labels (n,)."""
    if len(content) % _RECORD or not content:
        raise BadInput(
            f"{location} is truncated or not CIFAR-10: {len(content)} bytes, expected"
            f" {_OFFICIAL_BYTES} (records of {_RECORD}); {HINT}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0]


def _parse_pickle(content: bytes) -> tuple[Pixels, Pixels]:
    """Return pixels (n, 3072) and labels (n,) of an official file of the python version."""
    batch = pickle.loads(content, encoding="bytes")  # its checksum is the official one
    return batch[b"data"], np.array(batch[b"labels"], np.uint8)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
