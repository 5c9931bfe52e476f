"""SQLite cache of study summaries, so that lists need not read thousands of documents.

The documents remain authoritative. The index is in the user's cache, one for each machine. Read-only results
folders can therefore have an index, and machines never share a SQLite file over a network. Each access
updates the index: times, size and inode of a file show whether it was saved, changed or removed. A lost or
corrupt index, or one of another version of polybench, is rebuilt. If there cannot be an index, polybench
reads the documents.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import platformdirs

from polybench.data.disk import read_regular_file
from polybench.data.file_cache import cache_key
from polybench.errors import BadInput, __version__
from polybench.storage.summaries import StudySummary, summarize_document

_LOCK_TIMEOUT = 10.0
"""Maximum wait for another process that writes, in seconds."""

_VERSION = zlib.crc32(f"2 {__version__}".encode()) >> 1
"""Version of the table's format and of the summaries. SQLite stores 31 bits."""

_TABLE = """CREATE TABLE IF NOT EXISTS studies (
    file BLOB PRIMARY KEY, stamp BLOB NOT NULL, summary BLOB NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID"""

_NOT_CORRUPT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}

_SUFFIX = ".json"

Rows = dict[bytes, tuple[bytes, StudySummary]]
"""Stamp and summary by file name."""


class StudyIndex:
    """Index of one folder, which need not exist."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        cache = cache or platformdirs.user_cache_path("polybench") / "index"
        self.path = cache / f"{cache_key(socket.gethostname(), str(folder.resolve()))}.sqlite"

    def summaries(self) -> list[StudySummary]:
        """Return summaries of all documents in the folder, readable or not, the oldest first.

        Raises:
            BadInput: the folder cannot be read.
        """
        found = self._load_rows()
        return sorted((study for _, study in found.values()), key=lambda study: (study.started_at, study.file))

    def _load_rows(self) -> Rows:
        stamps = _stamps(self._folder)
        if not stamps:
            return {}
        with contextlib.suppress(OSError, sqlite3.Error):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._update_index(stamps)
            except (sqlite3.Error, msgspec.MsgspecError, CorruptIndex) as error:
                if getattr(error, "sqlite_errorcode", -1) & 0xFF in _NOT_CORRUPT:
                    raise
            self._remove()
            return self._update_index(stamps)
        return self._read_documents(stamps)

    def _update_index(self, stamps: dict[bytes, bytes]) -> Rows:
        with self._locked(fcntl.LOCK_SH), contextlib.closing(self._open()) as database:
            indexed = _indexed_rows(database)
            unchanged = {file: row for file, row in indexed.items() if stamps.get(file) == row[0]}
            changed = self._read_documents({file: stamp for file, stamp in stamps.items() if file not in unchanged})
            removed = [(file,) for file in indexed.keys() - stamps.keys()]
            if changed or removed:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("DELETE FROM studies WHERE file = ?", removed)
                rows = (_row(file, *row) for file, row in changed.items())
                database.executemany("INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?)", rows)
                database.execute("COMMIT")
        return unchanged | changed

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise CorruptIndex
            database.execute(_TABLE)
            if version == 0:
                database.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            database.close()
            raise
        return database

    def _remove(self) -> None:
        with self._locked(fcntl.LOCK_EX):  # waits until no process uses the index
            for suffix in ("-wal", "-shm", ""):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        with self.path.with_suffix(".lock").open("w") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, operation)
            yield

    def _read_documents(self, stamps: dict[bytes, bytes]) -> Rows:
        """Summarize the documents themselves, without those that disappear in the meantime."""
        rows: Rows = {}
        for file, stamp in stamps.items():
            path = self._folder / os.fsdecode(file)
            name = path.name.removesuffix(_SUFFIX).encode("utf-8", "backslashreplace").decode()
            try:
                written = path.stat().st_mtime
                rows[file] = stamp, summarize_document(name, read_regular_file(path), written)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not path.is_symlink():
                    continue
                rows[file] = (
                    b"",  # differs from every file's stamp, so the next access reads the file again
                    StudySummary(file=name, started_at=0.0, unreadable_reason=error.strerror or str(error)),
                )
        return rows


class CorruptIndex(Exception):
    """Raised if the index differs from what this version of polybench wrote."""


def _stamps(folder: Path) -> dict[bytes, bytes]:
    """Return a stamp of each document, which changes with its content."""
    try:
        with os.scandir(folder) as entries:
            return {
                os.fsencode(entry.name): _stamp(entry)
                for entry in entries
                if entry.name.endswith(_SUFFIX) and not entry.name.startswith(".")
            }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadInput(f"cannot read the results folder {folder}: {error.strerror}") from error


def _stamp(entry: os.DirEntry[str]) -> bytes:
    try:
        status = entry.stat()
    except OSError:  # a dangling link
        return b""
    return b"%d %d %d %d" % (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _row(file: bytes, stamp: bytes, study: StudySummary) -> tuple[bytes, bytes, bytes, int]:
    text = msgspec.json.encode(study)
    return file, stamp, text, _checksum(file, stamp, text)


def _indexed_rows(database: sqlite3.Connection) -> Rows:
    """Read all rows; raises CorruptIndex if a checksum is wrong."""
    decoder = msgspec.json.Decoder(StudySummary)
    rows: Rows = {}
    for *values, checksum in database.execute("SELECT file, stamp, summary, checksum FROM studies"):
        if any(type(value) is not bytes for value in values) or _checksum(*values) != checksum:
            raise CorruptIndex
        file, stamp, text = values
        rows[file] = stamp, decoder.decode(text)
    return rows


def _checksum(*values: bytes) -> int:
    """Return a checksum of a row, because SQLite stores none."""
    return zlib.crc32(b"\0".join(values))
