"""Cache of study summaries, so that lists need not read thousands of documents.

The documents remain authoritative. The index is a file in the user's cache, one for each machine and results
folder, so read-only folders can have one. Each access compares it with the folder: times, size and inode of a
file show whether it was saved, changed or removed. polybench then replaces the index as a whole, so readers
need no lock, and of several writers the last one wins. A lost or corrupt index, or one of another version of
polybench, is rebuilt.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import zlib
from pathlib import Path

import msgspec
import platformdirs

from polybench.data.disk import atomic_write, read_regular_file, remove_stale
from polybench.data.file_cache import cache_key
from polybench.errors import BadInput, __version__
from polybench.log import SUFFIX, DamagedLog, read_log
from polybench.storage.log_summary import summarize_log
from polybench.storage.summaries import StudySummary, summarize_document

_SUFFIXES = (".json", SUFFIX)

Rows = dict[bytes, tuple[bytes, StudySummary]]
"""Stamp and summary by file name."""


class StudyIndex:
    """Index of one folder, which need not exist."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        cache = cache or platformdirs.user_cache_path("polybench") / "index"
        self.path = cache / f"{cache_key(socket.gethostname(), str(folder.resolve()))}.msgpack"

    def summaries(self) -> list[StudySummary]:
        """Return summaries of all documents in the folder, readable or not, the oldest first.

        Raises:
            BadInput: the folder cannot be read.
        """
        stamps = _stamps(self._folder)
        indexed = self._load() if stamps else {}
        rows = {file: row for file, row in indexed.items() if stamps.get(file) == row[0]}
        rows |= self._read_documents({file: stamp for file, stamp in stamps.items() if file not in rows})
        if rows != indexed:
            self._save(rows)
        # A document precedes its log.
        by_name = {study.file: study for file, (_, study) in sorted(rows.items(), reverse=True)}
        return sorted(by_name.values(), key=lambda study: (study.started_at, study.file))

    def _load(self) -> Rows:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            checksum, _, text = self.path.read_bytes().partition(b"\n")
            if checksum == _checksum(text):
                return msgspec.msgpack.decode(text, type=Rows)
        return {}

    def _save(self, rows: Rows) -> None:
        text = msgspec.msgpack.encode(rows)
        with contextlib.suppress(OSError):  # the next access reads the documents again
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(self.path.parent, re.escape(self.path.name))
            with atomic_write(self.path) as file:
                file.write(_checksum(text) + b"\n" + text)

    def _read_documents(self, stamps: dict[bytes, bytes]) -> Rows:
        """Summarize the documents themselves, without those that disappear in the meantime."""
        rows: Rows = {}
        for file, stamp in stamps.items():
            path = self._folder / os.fsdecode(file)
            name = path.stem.encode("utf-8", "backslashreplace").decode()
            try:
                rows[file] = stamp, _summarize(path, name)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not path.is_symlink():
                    continue
                rows[file] = (
                    b"",  # differs from every file's stamp, so the next access reads the file again
                    StudySummary(file=name, started_at=0.0, unreadable_reason=error.strerror or str(error)),
                )
        return rows


def _summarize(path: Path, name: str) -> StudySummary:
    written = path.stat().st_mtime
    if path.suffix != SUFFIX:
        return summarize_document(name, read_regular_file(path), written)
    try:
        return summarize_log(name, read_log(path), written)
    except DamagedLog as error:
        return StudySummary(file=name, started_at=written, unreadable_reason=str(error))


def _checksum(text: bytes) -> bytes:
    """Return a checksum of an index, which differs between versions of polybench."""
    return b"%08x" % zlib.crc32(text, zlib.crc32(__version__.encode()))


def _stamps(folder: Path) -> dict[bytes, bytes]:
    """Return a stamp of each document, which changes with its content."""
    try:
        with os.scandir(folder) as entries:
            return {
                os.fsencode(entry.name): _stamp(entry)
                for entry in entries
                if entry.name.endswith(_SUFFIXES) and not entry.name.startswith(".")
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
