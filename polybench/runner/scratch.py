"""Scratch and log folders of running studies, and their locks.

A lock also works across containers, in which process IDs differ.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TextIO

import platformdirs

from polybench.data.disk import open_without_link, remove_folder
from polybench.errors import BadInput
from polybench.machine import host
from polybench.schema.documents import start_of_id
from polybench.storage.store import STUDY_ID

_STALE_LOCK_SECONDS = 30 * 86400.0
"""Age at which a lock file belongs to an earlier boot of some machine."""

_MAX_LOG_FOLDERS = 100
"""Number of studies whose logs remain; only studies with a failed worker have logs."""


@contextlib.contextmanager
def exclusive_lock() -> Iterator[bool]:
    """Yield whether no other study of this user runs on this machine; hold the lock meanwhile."""
    with _open_lock(_lock_path(_cache_folder())) as lock:
        yield _lock(lock) is not False


def prune_logs(logs: Path) -> None:
    """Delete the log folders of all but the newest studies; other files remain."""
    started = {path: start_of_id(path.name) for path in logs.glob("*") if STUDY_ID.match(start_of_id(path.name))}
    for folder in sorted(started, key=lambda path: started[path])[:-_MAX_LOG_FOLDERS]:
        remove_folder(folder, logs.parent)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary folder on disk, not in a memory file system, where epochs would use memory twice."""
    cache = _cache_folder()
    for lock in cache.glob("measuring*.lock"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                lock.unlink()  # of an earlier boot
    for folder in cache.glob("scratch-*"):
        if is_stale(folder):
            remove_folder(folder, cache)  # its study was killed
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=cache) as name, hold_lock(Path(name)):
        yield Path(name)


def _cache_folder() -> Path:
    """Return the user's cache folder, with this machine's lock file; raises BadInput if not writable."""
    folder = platformdirs.user_cache_path("polybench")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _open_lock(_lock_path(folder)) as lock:
            os.utime(lock.fileno())
    except OSError as error:
        raise BadInput(f"cannot write to the cache folder {folder}: {error.strerror}: set XDG_CACHE_HOME") from error
    return folder


def _lock_path(folder: Path) -> Path:
    """Return the path of this machine's lock file; cluster nodes may share the folder and its locks."""
    return folder / f"measuring-{host.boot_id()}.lock"


LOCK_FILE = "lock"
"""Name of the lock file."""

_GRACE_SECONDS = 60.0


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; raises BlockingIOError if another process holds it."""
    with _open_lock(folder / LOCK_FILE) as lock:
        if _lock(lock) is False:
            raise BlockingIOError
        yield


def _open_lock(path: Path, mode: Literal["a", "r+"] = "a") -> TextIO:
    """Open a lock file, without emptying it or following a link, since it may be another program's file."""
    return open(path, mode, opener=open_without_link)


def _lock(file: TextIO) -> bool | None:
    """Lock a file until it is closed; return False if another process has locked it, None if that is unknown."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None  # a file system without locks
    return True


def is_stale(folder: Path) -> bool:
    """Return whether no process holds the lock, and the grace period for taking it is over."""
    try:
        if time.time() - folder.stat().st_mtime < _GRACE_SECONDS:
            return False
        with _open_lock(folder / LOCK_FILE, "r+") as lock:
            return _lock(lock) is True
    except FileNotFoundError:
        return folder.is_dir()
    except OSError:
        return False
