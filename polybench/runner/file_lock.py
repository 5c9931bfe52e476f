"""Locks in the folders of running studies.

A lock also works across containers, in which process IDs differ.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

LOCK_FILE = "lock"
"""Name of the lock file."""

_GRACE_SECONDS = 60.0


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; raises BlockingIOError if another process holds it."""
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks
        yield


def is_stale(folder: Path) -> bool:
    """Return whether no process holds the lock, and the grace period for taking it is over."""
    try:
        if time.time() - folder.stat().st_mtime < _GRACE_SECONDS:
            return False
        with (folder / LOCK_FILE).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return folder.is_dir()
    except OSError:
        return False
    return True
