"""What a running study has for itself: a folder on disk, and the knowledge that no other study runs."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import platformdirs


@contextlib.contextmanager
def only_study_here() -> Iterator[bool]:
    """Whether no other study of this user runs on this machine; holds the lock while the block runs."""
    folder = Path(platformdirs.user_cache_dir("polybench"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measuring.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
