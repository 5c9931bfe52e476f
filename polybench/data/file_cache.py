"""Files that are kept between studies, because many studies need the same ones.

An entry is a folder: the files, and a manifest with their checksums and a note. It appears whole, by
renaming, and whoever uses it has its files under names of its own (hard links), so that it can be removed at
any time, by any process. No process waits for another.

Libraries for this (diskcache, joblib) keep pickled objects, and none checks what it kept. These are files of
up to hundreds of megabytes, which are mapped, or compared tensor by tensor.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
"""The kind of note: something that msgspec can write."""

_MANIFEST = "manifest.json"

_FRESH = "tmp"
_ABANDONED_NS = 3600 * 10**9
"""No entry takes so long to write."""

_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16


class _Manifest(msgspec.Struct, Generic[T], frozen=True):
    note: T
    checksums: dict[str, str]


def key_of(*what: object) -> str:
    """A name for what these values decide; of a path, its content counts."""
    values = [sha256(value) if isinstance(value, Path) else value for value in what]
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:32]


def sha256(path: Path) -> str:
    """Of the whole content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sampled_sha256(path: Path) -> str:
    """Of the size, the time of the last change and 64 pieces of the content.

    For files that are made as fast as they are read: it finds what was cut short, written to, or did not
    reach the disk.
    """
    status = path.stat()
    digest = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode())
    with path.open("rb") as file:
        for number in range(_SAMPLES):
            file.seek(max(0, status.st_size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


class FileCache(Generic[T]):
    """A folder of entries; beyond `limit` bytes, those that were not used for longest are removed.

    Args:
        folder: of the entries; it need not be there.
        note: the kind of note that an entry has.
        limit: bytes of all entries. Nothing is kept on a disk that has less than that free.
        checksum: by which a damaged file is known.
    """

    def __init__(
        self, folder: Path, note: type[T], limit: int, checksum: Callable[[Path], str] = sha256
    ) -> None:
        self._folder, self._limit, self._checksum = folder, limit, checksum
        self._decoder = msgspec.json.Decoder(_Manifest[note])  # type: ignore[valid-type]

    def fetch(self, key: str, into: Path, make: Callable[[], T]) -> T:
        """Put the files of an entry into a folder; they are the caller's own, and not to be written to.

        Args:
            key: names the entry, by everything that decides what is in its files.
            into: a folder for these files alone.
            make: writes the files there, if there is no such entry or a damaged one, which is removed.

        Returns:
            The entry's note.
        """
        known = self._taken(key, into)
        if known is not None:
            return known.note
        note = make()
        # A cache that cannot be written, or that is full, costs time only.
        with contextlib.suppress(OSError):
            self._keep(key, into, note)
        return note

    def find(self, key: str, into: Path) -> T | None:
        """The note of an entry, whose files are now in `into`; None if it is not there as it was.

        An entry that is damaged, or of another kind, is removed.
        """
        known = self._taken(key, into)
        return None if known is None else known.note

    def replace(self, key: str, files: Path, note: T) -> None:
        """Keep this entry, with the files of a folder, in place of one that may be there."""
        self.drop(key)
        with contextlib.suppress(OSError):
            self._keep(key, files, note)

    def drop(self, key: str) -> None:
        """Keep this entry no longer, if it is there."""
        shutil.rmtree(self._folder / key, ignore_errors=True)

    def _taken(self, key: str, into: Path) -> _Manifest[T] | None:
        """The manifest of an entry whose files are now in `into`; None if it is not there as it was."""
        entry = self._folder / key
        try:
            if not entry.exists():
                return None
            manifest = self._decoder.decode((entry / _MANIFEST).read_bytes())
            _stamp(entry)
            into.mkdir(parents=True, exist_ok=True)
            _link(entry, into, manifest.checksums)
            sound = all(self._checksum(into / name) == sum for name, sum in manifest.checksums.items())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Another process may just remove it.
            sound = False
        if sound:
            return manifest
        shutil.rmtree(entry, ignore_errors=True)
        for file in into.glob("*"):
            file.unlink()
        return None

    def _keep(self, key: str, files: Path, note: T) -> None:
        names = [file.name for file in files.iterdir()]
        self._folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self._folder).free < self._limit:
            return
        self._drop_abandoned()
        fresh = Path(tempfile.mkdtemp(dir=self._folder, prefix=_FRESH))
        try:
            _link(files, fresh, names)
            manifest = _Manifest(note, {name: self._checksum(fresh / name) for name in names})
            (fresh / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
            entry = fresh.rename(self._folder / key)  # fails if another process was faster
            _stamp(entry)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # it is there no more, if all went well
        self._make_room(entry)

    def _drop_abandoned(self) -> None:
        """What a killed process has left half done."""
        for folder in self._folder.glob(f"{_FRESH}*"):
            if time.time_ns() - _last_use(folder) > _ABANDONED_NS:
                shutil.rmtree(folder, ignore_errors=True)

    def _make_room(self, newest: Path) -> None:
        entries = sorted(self._folder.iterdir(), key=_last_use)
        sizes = {entry: _size(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in entries:
            if total <= self._limit:
                return
            if entry != newest:
                shutil.rmtree(entry, ignore_errors=True)
                total -= sizes[entry]


def _link(source: Path, target: Path, names: Iterable[str]) -> None:
    """The files under a second name; copies, where the file system has no such links.

    What had that name before keeps its content for those that have it open.
    """
    for name in names:
        (target / name).unlink(missing_ok=True)
        try:
            os.link(source / name, target / name)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source / name, target / name)


def _stamp(entry: Path) -> None:
    """Used now; the kernel's own time stamps are milliseconds apart."""
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
