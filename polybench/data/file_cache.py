"""Cache of files that many studies need.

An entry is a folder with the files and a manifest of their checksums and a note. A rename makes it appear
complete. Its users have the files under names of their own (hard links), so any process can remove an entry
at any time, and no process waits for another.

Libraries for this purpose (diskcache, joblib) store pickled objects and do not verify them. These files have
up to hundreds of megabytes and are memory-mapped, or compared tensor by tensor.

Only this user may write to the folder, because a checksum in it detects damage, not intent. The files are
hashed as a whole: for an epoch of 614 MB, this takes as long as writing it, but studies share the cached file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from polybench.data.disk import open_regular_file, remove_folder

T = TypeVar("T")
"""Type of an entry's note, serializable by msgspec."""

_MANIFEST = "manifest.json"

_TEMPORARY_PREFIX = "tmp"
_STALE_NS = 3600 * 10**9
"""Writing an entry never takes an hour."""


class _Manifest(msgspec.Struct, Generic[T], frozen=True):
    note: T
    checksums: dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][^/\0]*$")], str]
    """By the names of files, none of which leads out of the entry."""


def cache_key(*what: object) -> str:
    """Return a key that depends on all these values; a path stands for the file's content."""
    values = [sha256(value) if isinstance(value, Path) else value for value in what]
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:32]


def sha256(path: Path) -> str:
    """Return the SHA-256 of the whole content."""
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FileCache(Generic[T]):
    """A folder of entries; if they exceed `limit` bytes, the least recently used ones are removed.

    The cache is disabled if the disk has less free space than `limit`, or if other users can write to the folder.
    `note` is the type of the entries' notes.
    """

    def __init__(self, folder: Path, note: type[T], limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._decoder = msgspec.json.Decoder(_Manifest[note])  # type: ignore[valid-type]

    def fetch(self, key: str, into: Path, build: Callable[[], T]) -> T:
        """Put the files of an entry into a folder for them alone; return the entry's note.

        The files belong to the caller, who must not write to them. `key` depends on everything that determines them;
        `build` writes them if the entry is missing or damaged.
        """
        note = self.find(key, into)
        if note is None:
            note = build()
            with contextlib.suppress(OSError):  # a cache that is full or not writable only costs time
                self._store(key, into, note)
        return note

    def replace(self, key: str, files: Path, note: T) -> None:
        """Store this entry with the files of a folder, replacing an existing one."""
        self.evict(key)
        with contextlib.suppress(OSError):
            self._store(key, files, note)

    def evict(self, key: str) -> None:
        """Remove this entry, if it exists."""
        remove_folder(self._folder / key, self._folder)

    def find(self, key: str, into: Path) -> T | None:
        """Put the files of an entry into `into` and return its note; None if it is missing.

        An entry that is damaged or of another type is removed.
        """
        entry = self._folder / key
        try:
            if not entry.exists() or not self._is_private():
                return None
            manifest = self._decoder.decode((entry / _MANIFEST).read_bytes())
            _touch(entry)
            into.mkdir(parents=True, exist_ok=True)
            _link(entry, into, manifest.checksums)
            is_intact = all(sha256(into / name) == sum for name, sum in manifest.checksums.items())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Another process may be removing it.
            is_intact = False
        if is_intact:
            return manifest.note
        self.evict(key)
        for file in into.glob("*"):
            file.unlink()
        return None

    def _store(self, key: str, files: Path, note: T) -> None:
        names = [file.name for file in files.iterdir()]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_private() or shutil.disk_usage(self._folder).free < self._limit:
            return
        for folder in self._folder.glob(f"{_TEMPORARY_PREFIX}*"):  # incomplete entries of killed processes
            if time.time_ns() - _last_use(folder) > _STALE_NS:
                remove_folder(folder, self._folder)
        temporary = Path(tempfile.mkdtemp(dir=self._folder, prefix=_TEMPORARY_PREFIX))
        try:
            _link(files, temporary, names)
            manifest = _Manifest(note, {name: sha256(temporary / name) for name in names})
            (temporary / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
            entry = temporary.rename(self._folder / key)  # fails if another process was first
            _touch(entry)
        finally:
            remove_folder(temporary, self._folder)  # already renamed if nothing failed
        self._evict_oldest(entry)

    def _is_private(self) -> bool:
        status = self._folder.stat()
        return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _evict_oldest(self, newest: Path) -> None:
        entries = sorted(self._folder.iterdir(), key=_last_use)
        sizes = {entry: _size(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in entries:
            if total <= self._limit:
                return
            if entry != newest:
                remove_folder(entry, self._folder)
                total -= sizes[entry]


def _link(source: Path, target: Path, names: Iterable[str]) -> None:
    """Hard-link the files, or copy them if the file system lacks hard links.

    An existing target keeps its content for processes that have it open.
    """
    for name in names:
        (target / name).unlink(missing_ok=True)
        try:
            os.link(source / name, target / name)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source / name, target / name)


def _touch(entry: Path) -> None:
    """Mark as used now; the kernel's own time stamps are milliseconds apart."""
    now = time.time_ns()
    os.utime(entry, ns=(now, now))


def _last_use(entry: Path) -> int:
    try:
        return entry.stat().st_mtime_ns
    except FileNotFoundError:  # another process has removed it
        return 0


def _size(entry: Path) -> int:
    try:
        return sum(file.stat().st_size for file in entry.iterdir())
    except OSError:
        return 0
