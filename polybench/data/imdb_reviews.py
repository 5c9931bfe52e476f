"""The texts of IMDb's reviews, out of the archive or the folder that they come in, within bounds.

An archive is somebody else's: nothing of it is extracted, and what its headers say is not believed.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from gzip import GzipFile
from pathlib import Path
from typing import Any, NamedTuple

from polybench.core.errors import BadInput
from polybench.data.chunks import Split

ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
REMEDY = f"IMDb is {ARCHIVE}, or the folder {FOLDER} that it unpacks to"

_SENTIMENTS = ("neg", "pos")
"""By label."""
_NAME = re.compile(rf"(?:\./)?{FOLDER}/(train|test)/(neg|pos)/(\d+)_\d+\.txt")

_LARGEST_REVIEW = 1 << 20
_MOST_REVIEWS = 150_000
_MOST_TEXT = 256 << 20
"""Bytes of all reviews together, which are held; the official ones have a quarter of them."""
_LARGEST_UNPACKED = 1 << 30
"""Bytes; the official archive unpacks to half of it."""
_LARGEST_HEADERS = 1 << 16
"""Bytes of all that stands before one member: names, times, holes."""
_MOST_MEMBERS = 500_000
"""Of an archive; the official one has a fifth of them."""
_MOST_PAIRS = 100
"""That an archive says of all its members, which tarfile copies for each."""


class Review(NamedTuple):
    """Ordered by label and number, whatever the archive's order is."""

    label: int
    number: int
    text: bytes
    """UTF-8; as a string it may take four times the room."""


class Reviews:
    """Those of each split, until they are more than there can be."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.of: dict[str, list[Review]] = {split: [] for split in splits}
        self._left = _MOST_TEXT

    def add(self, match: re.Match[str], text: bytes, place: str) -> None:
        """One more, which is called as `match` says.

        Raises:
            BadInput: `text` is longer than a review may be, or they are too many; `place` is in the message.
        """
        split, sentiment, number = match.groups()
        if len(text) > _LARGEST_REVIEW:
            raise BadInput(f"{place} is no review: it has more than {_LARGEST_REVIEW:,} bytes")
        if len(self.of[split]) == _MOST_REVIEWS:
            raise BadInput(f"{place}: more than {_MOST_REVIEWS:,} reviews, where IMDb has 25,000")
        self._left -= len(text)
        if self._left < 0:
            raise BadInput(f"{place}: reviews up to here have more than {_MOST_TEXT:,} bytes; {REMEDY}")
        self.of[split].append(Review(_SENTIMENTS.index(sentiment), int(number[:18]), text))


def locate(path: Path) -> Path | None:
    """The archive, or the folder with `train` and `test`, that `path` is or contains; else None."""
    try:
        if path.is_file():
            return path
        folders = (place for place in (path, path / FOLDER) if (place / "train" / "pos").is_dir())
        archive = path / ARCHIVE
        return next(folders, archive if archive.is_file() else None)
    except OSError:  # a folder that one may not enter
        return None


def read_reviews(source: Path, splits: Sequence[Split]) -> Reviews:
    """The reviews of these splits, in any order.

    Raises:
        BadInput: it is damaged or not IMDb, or unpacks to more than it should; the message names the place.
    """
    found = Reviews(splits)
    try:
        _add_folder(found, source) if source.is_dir() else _add_archive(found, source)
    except (EOFError, zlib.error, tarfile.TarError, ValueError, IndexError, RecursionError) as error:
        raise BadInput(f"{source} is truncated, damaged or no .tar.gz archive ({error}); {REMEDY}") from error
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {REMEDY}") from error
    for split in splits:
        if {review.label for review in found.of[split]} != {0, 1}:
            raise BadInput(f"{source} is no IMDb, or not all of it: reviews in {split} missing; {REMEDY}")
    return found


def _add_folder(found: Reviews, folder: Path) -> None:
    for split in found.of:
        for sentiment in _SENTIMENTS:
            for path in (folder / split / sentiment).glob("*_*.txt"):
                match = _NAME.fullmatch(f"{FOLDER}/{split}/{sentiment}/{path.name}")
                if match and path.is_file():
                    with path.open("rb") as content:
                        found.add(match, content.read(_LARGEST_REVIEW + 1), str(path))


def _add_archive(found: Reviews, archive: Path) -> None:
    with GzipFile(archive) as unpacked:
        headers = _Headers(unpacked, archive)
        for info in _members(headers, archive):
            match = _NAME.fullmatch(info.name)
            if match and match[1] in found.of and info.isreg() and not info.issparse():
                size = min(info.size, _LARGEST_REVIEW + 1)
                headers.seek(info.offset_data)
                if len(text := unpacked.read(size)) < size:
                    raise EOFError(f"it ends in {info.name}")
                found.add(match, text, f"{archive}: {info.name}")
        headers.finish()


def _members(headers: _Headers, archive: Path) -> Iterator[tarfile.TarInfo]:
    """All of them, from the front to the end; what they call themselves can do no harm."""
    stream: Any = headers  # tarfile asks for nothing but what it has
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        seen: Any = vars(tar)["members"]  # which nobody needs
        for number, info in enumerate(tar):
            seen.clear()
            if tar.offset > _LARGEST_UNPACKED:  # where the next one would be looked for, however far
                raise BadInput(
                    f"{archive}: {info.name}, of {info.size:,} bytes, ends beyond the"
                    f" {_LARGEST_UNPACKED:,} that are unpacked; {REMEDY}"
                )
            if number == _MOST_MEMBERS or len(tar.pax_headers) > _MOST_PAIRS:
                raise BadInput(f"{archive} has more in it than IMDb, at {info.name}; {REMEDY}")
            if info.size < 0:  # which older versions of tarfile take for a size
                raise ValueError(f"{info.name} says that it has {info.size} bytes")
            yield info
            headers.next_member()


class _Headers:
    """What is unpacked, as tarfile reads it: forwards, and before each member no more than headers have."""

    def __init__(self, unpacked: GzipFile, archive: Path) -> None:
        self._unpacked, self._archive = unpacked, archive
        self._last = b""
        self.tell = unpacked.tell
        self.next_member()

    def next_member(self) -> None:
        """What is read from here on stands before another one."""
        self._left = _LARGEST_HEADERS

    def seek(self, position: int) -> None:
        """Forwards; going back would be unpacking again."""
        if position < self.tell():
            raise ValueError(f"at {self.tell():,} it goes back to {position:,}")
        self._unpacked.seek(position)

    def read(self, size: int) -> bytes:
        """The next bytes; raises BadInput where no member has as many before it."""
        self._left -= size
        if self._left < 0 or size < 0:
            raise BadInput(f"{self._archive}: headers of more than {_LARGEST_HEADERS:,} bytes; {REMEDY}")
        self._last = self._unpacked.read(size)
        return self._last

    def finish(self) -> None:
        """Read what follows the end that tarfile saw.

        Raises:
            EOFError: that was no end, but something that tarfile takes for one; or the rest is damaged.
        """
        if not self._last or self._last.strip(b"\0"):
            raise EOFError(f"at {self.tell():,} there is neither a member nor an end")
        while self._unpacked.read(_LARGEST_HEADERS):  # to its end, where gzip compares the sum
            if self.tell() > _LARGEST_UNPACKED:
                raise EOFError(f"it goes on beyond {_LARGEST_UNPACKED:,} bytes")
