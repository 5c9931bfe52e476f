"""Disk space checks, and safe reading and writing of files."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import platformdirs

from polybench.errors import BadInput

_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_STALE_SECONDS = 3600.0
_RANDOM_SUFFIX = r"[a-z0-9_]{8}"
"""Suffix of a name from `mkstemp`."""

_STREAMS = ("/dev/fd/", "/dev/std", "/proc/")
"""Beginnings of the names of open files: another file in their place would not be the one that is open."""

MAX_DOCUMENT_BYTES = 1 << 30
"""Maximum size of a file that is read as a whole: a study of a week has about 100 MB."""


def exists(path: Path) -> bool:
    """Return True if the path exists; False for invalid names, for which Python before 3.14 may raise."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Return True if the path is a regular file."""
    return exists(path) and path.is_file()


def open_regular_file(path: Path) -> io.BufferedReader:
    """Open a file of a user for reading; pipes and devices are rejected, since they may block or never end.

    Raises OSError if it is unreadable, or not a regular file.
    """
    # Opened this way, a pipe does not block; a file is read as usual.
    file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def read_regular_file(path: Path, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a whole file of a user; raises OSError as `open_regular_file`, or if it is larger than `max_bytes`."""
    with open_regular_file(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > max_bytes:
            problem = f"it has {size >> 20} MiB: expected at most {max_bytes >> 20} MiB"
            raise OSError(errno.EFBIG, problem, str(path))
        return file.read(max_bytes)


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def open_without_link(path: str, flags: int) -> int:
    """Open a private file, for `open`; raise OSError for a link, which may lead to any other file, or a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def is_inside(path: Path, root: Path) -> bool:
    """Return True if a path is not a link, and lies below `root` after links are resolved."""
    return not path.is_symlink() and Path(os.path.realpath(root)) in Path(os.path.realpath(path)).parents


def remove_folder(folder: Path, root: Path) -> None:
    """Delete a folder below `root`, as far as possible; links, and what they lead to, remain."""
    if is_inside(folder, root):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def only_process(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Wait until no other process is in this context with the same folder; call `on_wait` before waiting."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` when complete, with its mode; readers see the old file or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(stat.S_IMODE(path.stat().st_mode) if exists(path) else 0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user named: an older one remains until the new one is whole.

    Pipes, devices and standard streams are written to directly. Raises OSError if it cannot be written.
    """
    check_output(path)
    if _is_replaceable(path):
        with atomic_write(path.resolve()) as file:
            file.write(content)
    else:
        path.write_bytes(content)


def check_output(path: Path) -> None:
    """Raise OSError if `write_output` cannot write this file; changes nothing, and opens no pipe."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if exists(path) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if _is_replaceable(path):
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass


def _is_replaceable(path: Path) -> bool:
    """Return True if another file can take the place of this one; a link leads to the file that is replaced."""
    if str(path).startswith(_STREAMS):
        return False
    return not exists(path) or (path.is_file() and os.access(path.resolve().parent, os.W_OK))


def remove_stale(folder: Path, names: str) -> None:
    """Remove the temporary files that killed processes left in `atomic_write`; a write takes less than an
    hour.

    `names` is a regular expression for the names of their targets, since the folder may contain other hidden
    files.
    """
    own_files = re.compile(rf"\.{names}\.{_RANDOM_SUFFIX}")
    for file in folder.iterdir():
        with suppress(OSError):
            is_old = time.time() - file.stat().st_mtime > _STALE_SECONDS
            if is_old and own_files.fullmatch(file.name):
                file.unlink()


def _free_space_hint(folder: Path) -> str:
    """Return the fix that moves this folder to another disk."""
    for variable, parent in (("XDG_CACHE_HOME", platformdirs.user_cache_path()), ("TMPDIR", tempfile.gettempdir())):
        if folder.is_relative_to(parent):
            return f"free some space, or set {variable} to a folder on a larger disk"
    return "free some space, or choose another folder"


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


@contextmanager
def check_free_space(folder: Path, needed: int) -> Iterator[None]:
    """Create `folder` and check that it has space for about `needed` bytes, which this context writes.

    Raises:
        BadInput: the disk has too little space, or fills up meanwhile, or the folder is not writable.
    """
    size = f"{needed / 1e6:,.1f} MB ({needed} bytes) are needed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise BadInput(f"{folder} has {free / 1e6:,.1f} MB free, but {size}; {_free_space_hint(folder)}")
        yield
    except OSError as error:
        if error.errno is None:  # not from the operating system
            raise
        if error.errno in _DISK_FULL_ERRORS:
            raise BadInput(f"the disk of {folder} is full, but {size}; {_free_space_hint(folder)}") from error
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another folder") from error
