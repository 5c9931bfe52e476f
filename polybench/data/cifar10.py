"""CIFAR-10: download, verification and reading of its two published versions, as an archive or a folder.

binary: `data_batch_1.bin` to `_5.bin`, `test_batch.bin`; a record is a 1-byte label, then 3,072 bytes of
pixels.
python: the same names without `.bin`; pickled dictionaries with `data` (n, 3072) uint8 and a list of
`labels`.
Pixels are red, green, blue planes in row order, which is NCHW. The official files have 10,000 images each;
smaller files are accepted if the training files have equally many.
https://www.cs.toronto.edu/~kriz/cifar.html

A pickle is a program. Those of the python version were written by Python 2 and need four names. Each name resolves
to a placeholder that only stores its arguments; every other name is rejected, so a pickle cannot call anything.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import pickle
import pickletools
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from polybench.data.array_chunks import CLASSES, IMAGE_BYTES, IMAGE_SHAPE, Chunk, Pixels, Split
from polybench.data.disk import check_free_space, exists, is_file, only_process, open_regular_file
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
_READ_BYTES = 1 << 20

_UNPACKED = ".fetch-"
"""Start of the name of a temporary folder."""
_FETCHED_BYTES = 360_000_000
"""An archive of 170 MB, and 184 MB unpacked."""
_TIMEOUT_SECONDS = 30

_MAX_FILE_BYTES = 64 << 20
"""The official files have 31 MB; files rewritten by Python 3 have twice that, since its protocol 2 lacks bytes."""
_MAX_UNPACKED_BYTES, _MAX_MEMBERS = 1 << 30, 1000
"""The official archives have 184 MB and 9 members."""
_MAX_PICKLE_OPERATIONS = 1_000_000
"""A file of this content has 30,000 (one per label, two per name), or 90,000 if Python 3 wrote it."""
_MAX_MEMO_INDEX = 1 << 20
"""Python allocates as many memo entries as the largest index in a pickle."""


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
    candidates = (path, *(path / published.folder for published in ARCHIVES.values()))
    folders = (place for place in candidates if next(place.glob("data_batch_*"), None))
    archives = (path / published.name for published in ARCHIVES.values() if (path / published.name).is_file())
    return next(folders, None) or next(archives, None)


def read(source: Path, split: Split) -> Iterator[Chunk]:
    """Yield the images of one split of a source that `locate` found, in chunks, in the order of the archive's files.

    Raises:
        BadInput: a file is missing, truncated, damaged or not CIFAR-10; the message names it.
    """
    with _reported(source):
        members = _folder_members if source.is_dir() else _archive_members
        yield from _chunks(members(source, FILES[split]), FILES[split], source)


@contextlib.contextmanager
def _reported(source: Path) -> Iterator[None]:
    """Raise BadInput for a source that cannot be read."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise BadInput(f"{source} is truncated, damaged or not a .tar.gz archive ({error}); {HINT}") from error
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {HINT}") from error


def is_official_archive(source: Path, split: Split) -> bool:
    """Return True if the files of this split are, bit for bit, the published ones.

    An archive is compared as a whole, since its members are not unpacked.
    """
    if source.is_file():
        return _digest(source, "sha256") in {published.sha256 for published in ARCHIVES.values()}
    for name in FILES[split]:
        binary, python = source / f"{name}.bin", source / name
        path = binary if binary.is_file() else python
        if _digest(path, partial(hashlib.md5, usedforsecurity=False)) not in _OFFICIAL_FILES[name]:
            return False
    return True


def _digest(path: Path, algorithm: Any) -> str:
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


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
    return VerifiedArchive(source, images, all(is_official_archive(source, split) for split in splits))


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
                _unpack(_download(published, folder), Path(unpacked), target.name)
                (Path(unpacked) / target.name).rename(target)
    return target


def _unpack(archive: Path, folder: Path, name: str) -> None:
    """Unpack the files of the archive's only folder, and read them; raise BadInput if it contains anything else."""
    with _reported(archive):
        for tar, info in _tar_members(archive):
            if PurePosixPath(info.name).parent == PurePosixPath(name) and info.isreg() and info.size <= _MAX_FILE_BYTES:
                tar.extract(info, folder, filter="data")
            elif info.name != name or not info.isdir():
                raise tarfile.TarError(f"unexpected {info.name!r}")
    verify(folder / name)


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
        raise BadInput(f"the file from {url} is not CIFAR-10 (wrong SHA-256); try again, or {manual_hint}") from error


def _chunks(members: Iterator[_Member], files: tuple[str, ...], source: Path) -> Iterator[Chunk]:
    locations: dict[str, tuple[str, int]] = {}
    for member in members:
        if member.name in locations:
            raise BadInput(f"{member.location}: duplicate file; {HINT}")
        pixels, labels = _read_binary(member) if member.binary else _read_python(member)
        count = len(labels)
        for place, expected in locations.values():  # an image's index follows from the count
            if count != expected:
                (fewer, short), (more, full) = sorted(((member.location, count), (place, expected)), key=itemgetter(1))
                raise BadInput(f"{fewer} is truncated: {short} images, {more} has {full}; {HINT}")
        locations[member.name] = (member.location, count)
        wrong = np.flatnonzero(labels >= CLASSES)
        if wrong.size:
            raise BadInput(
                f"{member.location} is damaged or not CIFAR-10: record {wrong[0]} has label"
                f" {labels[wrong[0]]}, labels are 0 to {CLASSES - 1}; {HINT}"
            )
        yield Chunk(files.index(member.name) * count, pixels.reshape(-1, *IMAGE_SHAPE), labels)
    missing = [name for name in files if name not in locations]
    if missing:
        names = ", ".join(missing)
        raise BadInput(f"{source} is not CIFAR-10, or incomplete: {names} missing; {HINT}")


def _folder_members(folder: Path, files: tuple[str, ...]) -> Iterator[_Member]:
    binary = any(folder.glob("data_batch_*.bin"))
    for name in files:
        path = folder / (f"{name}.bin" if binary else name)
        if path.is_file():
            with open_regular_file(path) as content:
                yield _Member(name, binary, str(path), path.stat().st_size, content)


def _archive_members(archive: Path, files: tuple[str, ...]) -> Iterator[_Member]:
    """Yield members from start to end without extracting them, so that their names can do no harm."""
    for tar, info in _tar_members(archive):
        path = PurePosixPath(info.name)
        content = tar.extractfile(info) if info.isfile() else None
        if content and path.suffix in ("", ".bin") and path.stem in files:
            location = f"{archive}: {info.name}"
            with content:
                yield _Member(path.stem, path.suffix == ".bin", location, info.size, content)


class _BoundedGzip(gzip.GzipFile):
    """Unpacks no more than a few times the published files, since a small archive can unpack to terabytes."""

    def read(self, size: int | None = -1) -> bytes:
        self._check(self.tell() + (-1 if size is None else size))
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check(offset)
        return super().seek(offset, whence)

    def _check(self, end: int) -> None:
        if end > _MAX_UNPACKED_BYTES:
            raise gzip.BadGzipFile(f"it unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MiB")


def _tar_members(archive: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the members of a .tar.gz archive from start to end, each to be read before the next one."""
    with _BoundedGzip(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        for number, info in enumerate(tar, 1):
            if number > _MAX_MEMBERS:
                raise tarfile.TarError(f"it has more than {_MAX_MEMBERS} members")
            yield tar, info
        # The checksum is at the very end.
        while stream.read(_READ_BYTES):
            pass


def _read_binary(member: _Member) -> tuple[Pixels, Pixels]:
    """Return pixels (n, 3072) and labels (n,)."""
    if member.size % _RECORD or not 0 < member.size <= _MAX_FILE_BYTES:
        raise BadInput(
            f"{member.location} is truncated or not CIFAR-10: {member.size} bytes, expected"
            f" {_OFFICIAL_BYTES} (records of {_RECORD}); {HINT}"
        )
    content = member.content.read(member.size)
    if len(content) < member.size:
        raise BadInput(f"{member.location} is truncated: {len(content)} bytes, expected {member.size}; {HINT}")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0]


def _read_python(member: _Member) -> tuple[Pixels, Pixels]:
    try:
        return read_pickle(member.content, member.size)
    except ValueError as error:
        raise BadInput(f"{member.location} is truncated or not CIFAR-10: {error}; {HINT}") from error


class _PickleRef:
    """Stores the arguments and the state of an object that the pickle builds."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_PickleRef): ...


class _Dtype(_PickleRef): ...


def _encode(text: str, codec: str) -> bytes:
    if codec not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"unexpected encoding {codec!r}")
    return text.encode("latin1")


_ALLOWED_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED_NAMES:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return _ALLOWED_NAMES[module, name]


def read_pickle(content: IO[bytes], size: int) -> tuple[Pixels, Pixels]:
    """Return pixels (n, 3072) and labels (n,) of one file of `size` bytes.

    Raises ValueError if it is not a pickle, refers to an unexpected name, or is not a batch of CIFAR-10.
    """
    if size > _MAX_FILE_BYTES:
        raise ValueError(f"{size} bytes, expected about 31 million")
    try:
        raw = content.read(_MAX_FILE_BYTES)
        _reject_bombs(raw)
        batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(f"its pickle cannot be read ({error})") from error
    if not isinstance(batch, dict):
        raise ValueError("its pickle is not a dictionary")
    # Keys are bytes if Python 2 wrote them, text if Python 3 did.
    fields = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    pixels, labels = _pixels(fields.get("data")), fields.get("labels")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise ValueError("`labels` is not a list of small integers")
    if len(labels) != len(pixels) or not labels:
        raise ValueError(f"{len(pixels)} images, {len(labels)} labels")
    return pixels, np.array(labels, np.uint8)


def _reject_bombs(raw: bytes) -> None:
    """Raise if unpickling would take far more memory than the pickle has bytes."""
    for number, (operation, argument, _) in enumerate(pickletools.genops(raw)):
        if number >= _MAX_PICKLE_OPERATIONS:
            raise pickle.UnpicklingError(f"more than {_MAX_PICKLE_OPERATIONS:,} operations")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > _MAX_MEMO_INDEX:
            raise pickle.UnpicklingError(f"a memo index of {argument:,}")


def _pixels(array: Any) -> Pixels:
    """Return the content of a pickled array (n, 3072) with state (version, shape, dtype, Fortran order,
    bytes).
    """
    match array:
        case _Array(
            state=(int(), (int(), int(columns)), _Dtype(arguments=("u1" | b"u1", *_)), False | 0, bytes(raw))
        ) if columns == IMAGE_BYTES and len(raw) % IMAGE_BYTES == 0:
            return np.frombuffer(raw, np.uint8).reshape(-1, IMAGE_BYTES)
    raise ValueError(f"`data` is not a uint8 array of shape (n, {IMAGE_BYTES})")
