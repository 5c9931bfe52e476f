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

from polybench.core.errors import BadInput
from polybench.machine import host
from polybench.measuring.held import abandoned, held
from polybench.report.saved_studies import STUDY_ID

_OLD_SECONDS = 30 * 86400.0
"""After which nobody measures any more that began then."""

_KEPT_LOGS = 100
"""Of studies; only those have logs in which a worker failed."""


@contextlib.contextmanager
def only_study_here() -> Iterator[bool]:
    """Whether no other study of this user runs on this machine; holds the lock while the block runs."""
    with _lock(_cache()).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield True  # a file system without locks does not tell
        else:
            yield True


def prune_logs(logs: Path) -> None:
    """Keep the folders of the newest studies that left logs; what else is there is not polybench's."""
    for old in sorted(path for path in logs.glob("*") if STUDY_ID.match(path.name))[:-_KEPT_LOGS]:
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on disk (not in a memory file system, where an epoch would take memory twice)."""
    cache = _cache()
    for lock in cache.glob("measuring*.lock"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - lock.stat().st_mtime > _OLD_SECONDS:
                lock.unlink()  # of a machine that has started again since
    for folder in cache.glob("scratch-*"):
        if abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)  # its study was killed
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=cache) as name, held(Path(name)):
        yield Path(name)


def _cache() -> Path:
    """The user's cache folder, and this machine's lock in it; raises BadInput where it cannot be written."""
    folder = platformdirs.user_cache_path("polybench")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _lock(folder).touch()
    except OSError as error:
        raise BadInput(
            f"cannot write to the cache folder {folder}: {error.strerror}; set XDG_CACHE_HOME to another one"
        ) from error
    return folder


def _lock(folder: Path) -> Path:
    """Of this machine alone: on a cluster all nodes have the folder, and locks in it hold on all of them."""
    return folder / f"measuring-{host.boot_id()}.lock"
