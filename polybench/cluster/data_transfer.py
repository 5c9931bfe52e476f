"""Transfer of images to a machine that lacks them: a file or folder as bytes, and the hash of its content."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from polybench.data.file_cache import sha256
from polybench.errors import BadInput

MAX_UPLOAD_BYTES = 4 << 30
"""Maximum size of an upload; larger data should be on every machine, or on a shared file system."""

_CACHE_FOLDER = "cluster-data"
"""Folder in the receiving machine's cache; data with a known hash are not sent again."""


def content_sha256(path: Path) -> str:
    """Hash a file's bytes, or the names and bytes of a folder's files, independent of their order and times.

    Raises:
        BadInput: a link in the folder points to a parent folder.
    """
    if path.is_file():
        return sha256(path)
    digest = hashlib.sha256()
    for one in _files(path):
        digest.update(f"{one.relative_to(path).as_posix()}\0{sha256(one)}\n".encode())
    return digest.hexdigest()


def pack(path: Path) -> bytes:
    """Return the file or folder as a tar archive.

    Raises:
        BadInput: it is too large to send.
    """
    size = sum(one.stat().st_size for one in ([path] if path.is_file() else _files(path)))
    if size > MAX_UPLOAD_BYTES:
        raise BadInput(
            f"--data {path}: {size / 2**30:.1f} GiB are too large to send; copy them to the same path on every machine"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:  # as the hash does
        tar.add(path, arcname=path.name)
    return buffer.getvalue()


def cached_path(name: str, digest: str) -> Path:
    """Return the path for received data, whether they exist or not."""
    return platformdirs.user_cache_path("polybench") / _CACHE_FOLDER / digest[:16] / name


def is_cached(path: Path, digest: str) -> bool:
    """Return True if the path exists and has this hash."""
    return path.exists() and content_sha256(path) == digest


def unpack(content: bytes, name: str, digest: str) -> Path:
    """Unpack received data and verify their hash.

    Raises:
        BadInput: the SHA-256 differs, or the disk is too small.
    """
    path = cached_path(name, digest)
    if is_cached(path, digest):
        return path
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                tar.extractall(folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise BadInput(f"cannot write the received images: {error}") from error
        received_digest = content_sha256(Path(folder) / name)
        if received_digest != digest:
            raise BadInput(f"the received images are damaged: SHA-256 {received_digest[:16]}: expected {digest[:16]}")
        if not is_cached(path, digest):  # two nodes may share a home folder and receive the data at the same time
            _move(Path(folder), path, digest)
    return path


def _move(folder: Path, path: Path, digest: str) -> None:
    shutil.rmtree(path.parent, ignore_errors=True)
    try:
        folder.rename(path.parent)
    except OSError as error:
        if not is_cached(path, digest):
            raise BadInput(f"cannot write the received images: {error}") from error
    else:
        folder.mkdir()  # the context removes it


def _files(folder: Path) -> list[Path]:
    """Return all readable files below the folder, following links to folders as the image reader does."""
    return sorted(_files_below(folder, frozenset()))


def _files_below(folder: Path, ancestors: frozenset[Path]) -> Iterator[Path]:
    real = folder.resolve()
    if real in ancestors:
        raise BadInput(f"{folder} is a link to a parent folder; remove it")
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files_below(path, ancestors | {real})
        elif path.is_file():
            yield path
