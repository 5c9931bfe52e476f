"""What lists need of all saved studies, kept in SQLite: thousands of documents are not read each time.

The documents are the truth. The index is in the user's cache, one of each machine: so a folder of results
that cannot be written has one, too, and no two machines share a file's memory over a network. It is brought
up to date when somebody looks: what was saved, changed or removed shows in a file's times, size and number.
An index that is lost, damaged or of another version of polybench is made anew; where none can be kept, the
documents are read.
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

from polybench.core.errors import BadInput
from polybench.core.version import __version__
from polybench.data.disk import regular_bytes
from polybench.data.file_cache import key_of
from polybench.report.listed import Listed, listed

_PATIENCE = 10.0
"""Seconds to wait for another process that writes."""

_VERSION = zlib.crc32(f"1 {__version__}".encode()) >> 1
"""Of the format, and of what polybench makes of a document; SQLite keeps 31 bits."""

_TABLE = """CREATE TABLE IF NOT EXISTS studies (
    file BLOB PRIMARY KEY, stamp BLOB NOT NULL, listed BLOB NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID"""

_NO_DAMAGE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}

_SUFFIX = ".json"

Rows = dict[bytes, tuple[bytes, Listed]]
"""By file name: stamp, and what is listed."""


class StudyIndex:
    """The index of one folder.

    Args:
        folder: of the documents; it need not be there.
        cache: where the index is kept; by default in the user's cache.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        cache = cache or platformdirs.user_cache_path("polybench") / "index"
        self.path = cache / f"{key_of(socket.gethostname(), str(folder.resolve()))}.sqlite"

    def studies(self) -> list[Listed]:
        """All documents of the folder, readable or not, the oldest first.

        Raises:
            BadInput: the folder cannot be read.
        """
        found = self._refreshed()
        return sorted((study for _, study in found.values()), key=lambda study: (study.when, study.file))

    def _refreshed(self) -> Rows:
        stamps = _stamps(self._folder)
        if not stamps:
            return {}
        with contextlib.suppress(OSError, sqlite3.Error):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._through_the_index(stamps)
            except (sqlite3.Error, msgspec.MsgspecError, _Damaged) as error:
                if getattr(error, "sqlite_errorcode", -1) & 0xFF in _NO_DAMAGE:
                    raise
            self._remove()
            return self._through_the_index(stamps)
        return self._read(stamps)

    def _through_the_index(self, stamps: dict[bytes, bytes]) -> Rows:
        with self._locked(fcntl.LOCK_SH), contextlib.closing(self._open()) as database:
            known = _known(database)
            kept = {file: row for file, row in known.items() if stamps.get(file) == row[0]}
            fresh = self._read({file: stamp for file, stamp in stamps.items() if file not in kept})
            gone = [(file,) for file in known.keys() - stamps.keys()]
            if fresh or gone:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("DELETE FROM studies WHERE file = ?", gone)
                rows = (_row(file, *row) for file, row in fresh.items())
                database.executemany("INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?)", rows)
                database.execute("COMMIT")
        return kept | fresh

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise _Damaged
            database.execute(_TABLE)
            if version == 0:
                database.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            database.close()
            raise
        return database

    def _remove(self) -> None:
        with self._locked(fcntl.LOCK_EX):  # nobody uses it any more
            for suffix in ("-wal", "-shm", ""):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with self.path.with_suffix(".lock").open("w") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, how)
            yield

    def _read(self, stamps: dict[bytes, bytes]) -> Rows:
        """From the documents themselves; without those that vanish meanwhile."""
        found: Rows = {}
        for file, stamp in stamps.items():
            path = self._folder / os.fsdecode(file)
            name = path.name.removesuffix(_SUFFIX).encode("utf-8", "backslashreplace").decode()
            try:
                written = path.stat().st_mtime
                found[file] = stamp, listed(name, regular_bytes(path), written)
            except OSError as error:  # not kept for long: its stamp is none that a file has
                if isinstance(error, FileNotFoundError) and not path.is_symlink():
                    continue
                found[file] = b"", Listed(file=name, when=0.0, unreadable=error.strerror or str(error))
        return found


class _Damaged(Exception):
    """The index is not what this version of polybench wrote."""


def _stamps(folder: Path) -> dict[bytes, bytes]:
    """Of each document: changes with its content."""
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
    except OSError:  # a link to nothing
        return b""
    return b"%d %d %d %d" % (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _row(file: bytes, stamp: bytes, study: Listed) -> tuple[bytes, bytes, bytes, int]:
    text = msgspec.json.encode(study)
    return file, stamp, text, _checksum(file, stamp, text)


def _known(database: sqlite3.Connection) -> Rows:
    """What is in the index; raises _Damaged where a row is not as it was written."""
    decoder = msgspec.json.Decoder(Listed)
    rows: Rows = {}
    for *parts, checksum in database.execute("SELECT file, stamp, listed, checksum FROM studies"):
        if any(type(part) is not bytes for part in parts) or _checksum(*parts) != checksum:
            raise _Damaged
        file, stamp, text = parts
        rows[file] = stamp, decoder.decode(text)
    return rows


def _checksum(*parts: bytes) -> int:
    """SQLite has none of what it keeps."""
    return zlib.crc32(b"\0".join(parts))
