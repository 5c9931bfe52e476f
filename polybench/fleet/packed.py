"""Images for a machine that lacks them: a file or folder as a string of bytes, and its content's hash."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from polybench.core.errors import BadInput
from polybench.data.file_cache import sha256

LARGEST_BYTES = 4 << 30
"""Of what is sent: more belongs on every machine, or on a file system that all share."""

_FOLDER = "fleet-data"
"""In the cache of the machine that was sent it: what is there under the same hash is not sent again."""


def content_sha256(path: Path) -> str:
    """Of a file's bytes; of a folder's files, their names and bytes, whatever their order and times.

    Raises:
        BadInput: a link in the folder leads back to it.
    """
    if path.is_file():
        return sha256(path)
    digest = hashlib.sha256()
    for one in _files(path):
        digest.update(f"{one.relative_to(path).as_posix()}\0{sha256(one)}\n".encode())
    return digest.hexdigest()


def pack(path: Path) -> bytes:
    """A tar of it.

    Raises:
        BadInput: it is too large to be sent.
    """
    size = sum(one.stat().st_size for one in ([path] if path.is_file() else _files(path)))
    if size > LARGEST_BYTES:
        raise BadInput(
            f"--data {path}: {size / 2**30:.1f} GiB are too many to be sent; have them on every machine at"
            " the same path"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:  # as the hash does
        tar.add(path, arcname=path.name)
    return buffer.getvalue()


def kept(name: str, digest: str) -> Path:
    """Where a machine keeps what it was sent, whether it is there or not."""
    return platformdirs.user_cache_path("polybench") / _FOLDER / digest[:16] / name


def is_there(place: Path, digest: str) -> bool:
    """Whether it lies at this place, undamaged."""
    return place.exists() and content_sha256(place) == digest


def unpack(content: bytes, name: str, digest: str) -> Path:
    """Write what was sent, and look whether it is what was meant.

    Raises:
        BadInput: its content has another SHA-256, or there is no room for it.
    """
    place = kept(name, digest)
    if is_there(place, digest):
        return place
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent.parent) as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                tar.extractall(folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise BadInput(f"cannot write the images that were sent: {error}") from error
        arrived = content_sha256(Path(folder) / name)
        if arrived != digest:
            raise BadInput(f"the images arrived damaged: SHA-256 {arrived[:16]}, and {digest[:16]} was sent")
        if not is_there(place, digest):  # two nodes may have one home, and be sent it at once
            _put(Path(folder), place, digest)
    return place


def _put(folder: Path, place: Path, digest: str) -> None:
    shutil.rmtree(place.parent, ignore_errors=True)
    try:
        folder.rename(place.parent)
    except OSError as error:
        if not is_there(place, digest):
            raise BadInput(f"cannot write the images that were sent: {error}") from error
    else:
        folder.mkdir()  # for the context to remove


def _files(folder: Path) -> list[Path]:
    """All that can be read below it, also where a link names a folder: whoever reads images follows it."""
    return sorted(_below(folder, frozenset()))


def _below(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    real = folder.resolve()
    if real in above:
        raise BadInput(f"{folder} names a folder that it is in; remove this link")
    for path in folder.iterdir():
        if path.is_dir():
            yield from _below(path, above | {real})
        elif path.is_file():
            yield path
