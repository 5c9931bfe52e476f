"""IMDb's reviews as their authors publish them: an archive of text files, or the unpacked folder.

`aclImdb/train/pos/0_9.txt` and similar: 25,000 reviews each to train and to test, positive and negative.
Maas et al., 2011: https://ai.stanford.edu/~amaas/data/sentiment/

An archive is untrusted: nothing is extracted, and sizes in its headers are checked against limits.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from gzip import GzipFile
from pathlib import Path
from typing import Any, NamedTuple

from polybench.data.array_chunks import Split
from polybench.errors import BadInput

ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
HINT = f"IMDb is {ARCHIVE}, or the folder {FOLDER} that it unpacks to"

_SENTIMENTS = ("neg", "pos")
"""Folders, by label."""
_NAME = re.compile(rf"(?:\./)?{FOLDER}/(train|test)/(neg|pos)/(\d+)_\d+\.txt")

_MAX_REVIEW_BYTES = 1 << 20
_MAX_REVIEWS = 150_000
_MAX_TEXT_BYTES = 256 << 20
"""Maximum size of all reviews in memory; the official ones have a quarter of it."""
_MAX_UNPACKED_BYTES = 1 << 30
"""The official archive unpacks to half of it."""
_MAX_HEADER_BYTES = 1 << 16
"""Maximum size of everything before one member: names, times, holes."""
_MAX_MEMBERS = 500_000
"""Maximum number of an archive's members; the official archive has a fifth of it."""
_MAX_PAX_HEADERS = 100
"""Maximum number of global headers, which tarfile copies for each member."""


class Review(NamedTuple):
    """A review; sorts by label and number, independent of the archive's order."""

    label: int
    number: int
    text: bytes
    """UTF-8; a string may take four times the memory."""


class Reviews:
    """Reviews by split, up to maximum numbers."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.by_split: dict[str, list[Review]] = {split: [] for split in splits}
        self._remaining_bytes = _MAX_TEXT_BYTES

    def add(self, match: re.Match[str], text: bytes, location: str) -> None:
        """Add a review with the file name of `match`.

        Raises:
            BadInput: `text` is too long, or there are too many reviews; the message has `location`.
        """
        split, sentiment, number = match.groups()
        if len(text) > _MAX_REVIEW_BYTES:
            raise BadInput(f"{location} is not a review: it has more than {_MAX_REVIEW_BYTES:,} bytes")
        if len(self.by_split[split]) == _MAX_REVIEWS:
            raise BadInput(f"{location}: more than {_MAX_REVIEWS:,} reviews: expected 25,000")
        self._remaining_bytes -= len(text)
        if self._remaining_bytes < 0:
            raise BadInput(f"{location}: reviews up to this one have more than {_MAX_TEXT_BYTES:,} bytes; {HINT}")
        self.by_split[split].append(Review(_SENTIMENTS.index(sentiment), int(number[:18]), text))


def locate(path: Path) -> Path | None:
    """Return the archive, or the folder with `train` and `test`, that `path` is or contains; else None."""
    try:
        if path.is_file():
            return path
        folders = (place for place in (path, path / FOLDER) if (place / "train" / "pos").is_dir())
        archive = path / ARCHIVE
        return next(folders, archive if archive.is_file() else None)
    except OSError:  # no permission to read the folder
        return None


def read_reviews(source: Path, splits: Sequence[Split]) -> Reviews:
    """Read the reviews of these splits, in any order.

    Raises:
        BadInput: the source is damaged, not IMDb, or unpacks to too many bytes; the message names the file.
    """
    found = Reviews(splits)
    try:
        _add_folder(found, source) if source.is_dir() else _add_archive(found, source)
    except (EOFError, zlib.error, tarfile.TarError, ValueError, IndexError, RecursionError) as error:
        raise BadInput(f"{source} is truncated, damaged or not a .tar.gz archive ({error}); {HINT}") from error
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {HINT}") from error
    for split in splits:
        if {review.label for review in found.by_split[split]} != {0, 1}:
            raise BadInput(f"{source} is not IMDb, or incomplete: reviews in {split} missing; {HINT}")
    return found


def _add_folder(found: Reviews, folder: Path) -> None:
    for split in found.by_split:
        for sentiment in _SENTIMENTS:
            for path in (folder / split / sentiment).glob("*_*.txt"):
                match = _NAME.fullmatch(f"{FOLDER}/{split}/{sentiment}/{path.name}")
                if match and path.is_file():
                    with path.open("rb") as content:
                        found.add(match, content.read(_MAX_REVIEW_BYTES + 1), str(path))


def _add_archive(found: Reviews, archive: Path) -> None:
    with GzipFile(archive) as unpacked:
        headers = _HeaderReader(unpacked, archive)
        for info in _members(headers, archive):
            match = _NAME.fullmatch(info.name)
            if match and match[1] in found.by_split and info.isreg() and not info.issparse():
                size = min(info.size, _MAX_REVIEW_BYTES + 1)
                headers.seek(info.offset_data)
                if len(text := unpacked.read(size)) < size:
                    raise EOFError(f"it ends in {info.name}")
                found.add(match, text, f"{archive}: {info.name}")
        headers.finish()


def _members(headers: _HeaderReader, archive: Path) -> Iterator[tarfile.TarInfo]:
    """Yield all members from start to end; their names can do no harm, since nothing is extracted."""
    stream: Any = headers  # it has all methods that tarfile calls
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        past_members: Any = vars(tar)["members"]  # unused, but it would grow
        for number, info in enumerate(tar):
            past_members.clear()
            if tar.offset > _MAX_UNPACKED_BYTES:  # the position of the next member
                raise BadInput(
                    f"{archive}: {info.name}, of {info.size:,} bytes, ends beyond the limit of"
                    f" {_MAX_UNPACKED_BYTES:,} unpacked bytes; {HINT}"
                )
            if number == _MAX_MEMBERS or len(tar.pax_headers) > _MAX_PAX_HEADERS:
                raise BadInput(f"{archive} has more members than IMDb, at {info.name}; {HINT}")
            if info.size < 0:  # older versions of tarfile accept it
                raise ValueError(f"{info.name} has a size of {info.size} bytes")
            yield info
            headers.next_member()


class _HeaderReader:
    """The unpacked archive as tarfile reads it: forward only, with a limited number of bytes per header."""

    def __init__(self, unpacked: GzipFile, archive: Path) -> None:
        self._unpacked, self._archive = unpacked, archive
        self._last = b""
        self.tell = unpacked.tell
        self.next_member()

    def next_member(self) -> None:
        """Start the headers of another member."""
        self._remaining_bytes = _MAX_HEADER_BYTES

    def seek(self, position: int) -> None:
        """Seek forward; seeking backward would unpack again."""
        if position < self.tell():
            raise ValueError(f"backward seek from {self.tell():,} to {position:,}")
        self._unpacked.seek(position)

    def read(self, size: int) -> bytes:
        """Read the next bytes; raises BadInput if the headers exceed their limit."""
        self._remaining_bytes -= size
        if self._remaining_bytes < 0 or size < 0:
            raise BadInput(f"{self._archive}: headers of more than {_MAX_HEADER_BYTES:,} bytes; {HINT}")
        self._last = self._unpacked.read(size)
        return self._last

    def finish(self) -> None:
        """Read what follows the end that tarfile detected.

        Raises:
            EOFError: tarfile's end was not one, or the rest is damaged.
        """
        if not self._last or self._last.strip(b"\0"):
            raise EOFError(f"neither a member nor an end at {self.tell():,}")
        while self._unpacked.read(_MAX_HEADER_BYTES):  # up to the end, where gzip verifies its checksum
            if self.tell() > _MAX_UNPACKED_BYTES:
                raise EOFError(f"more than {_MAX_UNPACKED_BYTES:,} bytes unpacked")
