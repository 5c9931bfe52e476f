"""What a running study has for itself: a folder on disk, and the knowledge that no other study runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import psutil


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


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on disk (not in a memory file system, where an epoch would take memory twice)."""
    cache = Path(platformdirs.user_cache_dir("polybench"))
    for leftover in cache.glob("scratch-*"):
        if not psutil.pid_exists(int(leftover.name.split("-")[1])):
            shutil.rmtree(leftover, ignore_errors=True)  # its study was killed
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"scratch-{os.getpid()}-", dir=cache) as folder:
        yield Path(folder)
