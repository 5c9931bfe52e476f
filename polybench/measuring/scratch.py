"""What a running study has for itself: a folder on disk, and the knowledge that no other study runs."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

_LOCK = "lock"
_NEW_SECONDS = 60.0


@contextlib.contextmanager
def only_study_here() -> Iterator[bool]:
    """Whether no other study of this user runs on this machine; holds the lock while the block runs."""
    folder = Path(platformdirs.user_cache_dir("polybench"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measuring.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield True  # a file system without locks does not tell
        else:
            yield True


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on disk (not in a memory file system, where an epoch would take memory twice)."""
    cache = Path(platformdirs.user_cache_dir("polybench"))
    for folder in cache.glob("scratch-*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)  # its study was killed
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=cache) as name, _lock(Path(name)):
        yield Path(name)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Say that the folder's study lives: to other containers, too, where its process has another number."""
    with (folder / _LOCK).open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _abandoned(folder: Path) -> bool:
    """Whether nobody holds its lock, though there was time to take it."""
    try:
        if time.time() - folder.stat().st_mtime < _NEW_SECONDS:
            return False
        with (folder / _LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return folder.is_dir()
    except OSError:
        return False
    return True
