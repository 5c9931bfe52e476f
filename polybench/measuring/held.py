"""Folders that belong to a running study: a lock in them says that it lives.

To other containers, too, where its process has another number.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

LOCK = "lock"
"""The file's name."""

_NEW_SECONDS = 60.0


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while the block runs; raises BlockingIOError where another process does."""
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks
        yield


def abandoned(folder: Path) -> bool:
    """Whether nobody holds the folder's lock, though there was time to take it."""
    try:
        if time.time() - folder.stat().st_mtime < _NEW_SECONDS:
            return False
        with (folder / LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return folder.is_dir()
    except OSError:
        return False
    return True
