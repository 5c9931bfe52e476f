"""Room on the disk: asked for before a large file is written, and named when it runs out all the same."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import platformdirs

from polybench.core.errors import BadInput

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ABANDONED_SECONDS = 3600.0
_RANDOM = r"[a-z0-9_]{8}"
"""How `mkstemp` ends a name."""

LARGEST_DOCUMENT = 1 << 30
"""Bytes of a file that is read as a whole: a study of a week has some 100 MB."""


def is_there(path: Path) -> bool:
    """Whether there is anything of this name; one that no file can have is a question, too, until 3.14."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether a regular file has this name."""
    return is_there(path) and path.is_file()


def regular_bytes(path: Path, limit: int = LARGEST_DOCUMENT) -> bytes:
    """All of a file that has an end: a pipe would be waited for, a device may give bytes for ever.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than `limit` bytes.
    """
    # A pipe is not waited for when it is opened like this; a file is read as ever.
    with open(path, "rb", opener=_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {status.st_size >> 20} MiB", str(path))
        return file.read(limit)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, which becomes `path` when it is complete; a reader sees the old one or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def drop_abandoned(folder: Path, names: str) -> None:
    """Remove the unfinished files that killed processes have left of `replacing`; no write takes an hour.

    `names` is a regular expression, of what they were to replace: hidden files of others lie there, too.
    """
    ours = re.compile(rf"\.{names}\.{_RANDOM}")
    for file in folder.iterdir():
        with suppress(OSError):
            old = time.time() - file.stat().st_mtime > _ABANDONED_SECONDS
            if old and ours.fullmatch(file.name):
                file.unlink()


def _remedy(folder: Path) -> str:
    """What moves that folder to another disk."""
    for variable, above in (
        ("XDG_CACHE_HOME", platformdirs.user_cache_path()),
        ("TMPDIR", tempfile.gettempdir()),
    ):
        if folder.is_relative_to(above):
            return f"free some space, or set {variable} to a folder on a larger disk"
    return "free some space, or choose another folder"


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


@contextmanager
def room(folder: Path, needed: int) -> Iterator[None]:
    """Inside this context about `needed` bytes are written to `folder`, which is made if it is not there.

    Raises:
        BadInput: the disk has less than that free, or fills up meanwhile, or the folder cannot be written.
    """
    size = f"{needed / 1e6:,.1f} MB ({needed} bytes) are needed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise BadInput(f"{folder} has {free / 1e6:,.1f} MB free, {size}; {_remedy(folder)}")
        yield
    except OSError as error:
        if error.errno is None:  # not from the system
            raise
        if error.errno in _FULL:
            raise BadInput(f"the disk of {folder} is full, {size}; {_remedy(folder)}") from error
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another folder") from error
