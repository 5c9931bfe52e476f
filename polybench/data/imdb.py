"""IMDb's reviews as their authors publish them: an archive of text files, or the folder that it unpacks to.

`aclImdb/train/pos/0_9.txt` and the like: 25,000 reviews to train with and as many to test, good and bad ones.
Maas et al., 2011: https://ai.stanford.edu/~amaas/data/sentiment/

They become tokens as in Keras's examples: words by how often the training set has them, from 4 on; 1 begins a
review, 2 is any rarer word. Where the network has more tokens than words, the pairs of neighbours follow the
words, each as the bucket of its hash. The last tokens count; 0 stands in front of a review that has fewer.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from gzip import GzipFile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import BadInput
from polybench.data.chunks import Chunk, Split

ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
CLASSES = 2
FEWEST_TOKENS = 3
"""What stands in front of a short review, what begins one, and what is any word."""
WORDS = 20_000
"""As many as Keras's examples tell apart, with what is no word."""
REMEDY = f"IMDb is {ARCHIVE}, or the folder {FOLDER} that it unpacks to"

_BEGIN, _RARE, _FIRST_WORD = 1, 2, 4
_SPLITS: tuple[Split, Split] = ("train", "test")
_SENTIMENTS = ("neg", "pos")
"""By label."""
_NAME = re.compile(rf"(?:\./)?{FOLDER}/(train|test)/(neg|pos)/(\d+)_\d+\.txt")
_WORD = re.compile(r"[a-z0-9']+")

_LARGEST_REVIEW = 1 << 20
_LARGEST_UNPACKED = 1 << 30
"""Bytes; the official archive unpacks to half of it."""
_LARGEST_HEADER = 1 << 16
"""Bytes of what stands before a member: names and times."""
_MOST_MEMBERS = 500_000
"""Of an archive; the official one has a fifth of them."""
_MOST_PAIRS = 100
"""That an archive says of all its members, which tarfile copies for each."""
_MOST_TEXT = 256 << 20
"""Bytes of all reviews together, which are held; the official ones have a quarter of them."""
_MOST_REVIEWS = 150_000
_MOST_WORDS = 1 << 21
"""Different ones; the official reviews have a twentieth of them."""
_TOKENS_AT_ONCE = 1 << 19


class _Review(NamedTuple):
    """Ordered by label and number, whatever the archive's order is."""

    label: int
    number: int
    text: bytes
    """UTF-8; as a string it may take four times the room."""


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


def read(source: Path, split: Split, length: int, vocabulary: int) -> Iterator[Chunk]:
    """The reviews of one split as sequences of `length` tokens below `vocabulary`.

    Args:
        source: what `locate` found.
        split: "train" or "test"; which words there are, the training reviews tell for both.
        length: of each sequence.
        vocabulary: how many tokens the network knows.

    Raises:
        BadInput: it is damaged or not IMDb, or unpacks to more than it should; the message names the place.
            Or the network knows too few tokens.
    """
    if vocabulary < FEWEST_TOKENS:
        raise BadInput(
            f"IMDb's reviews have {FEWEST_TOKENS} tokens at least (padding, the beginning, any word),"
            f" and this network knows {vocabulary}"
        )
    wanted = _SPLITS[: _SPLITS.index(split) + 1]
    try:
        found = _folder_reviews(source, wanted) if source.is_dir() else _archive_reviews(source, wanted)
    except (EOFError, zlib.error, tarfile.TarError, ValueError, IndexError, RecursionError) as error:
        raise BadInput(f"{source} is truncated, damaged or no .tar.gz archive ({error}); {REMEDY}") from error
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {REMEDY}") from error
    for one in wanted:
        if {review.label for review in found.of[one]} != {0, 1}:
            raise BadInput(f"{source} is no IMDb, or not all of it: reviews in {one} missing; {REMEDY}")
    words = min(vocabulary, WORDS)
    tokens = _tokens_of_words(found.of["train"], words, source)
    reviews = sorted(found.of[split])
    at_once = max(1, _TOKENS_AT_ONCE // length)
    for first in range(0, len(reviews), at_once):
        some = reviews[first : first + at_once]
        rows = np.zeros((len(some), length), np.int32)
        for row, review in zip(rows, some, strict=True):
            sequence = _sequence(review.text, tokens, words, vocabulary - words)[-length:]
            row[length - len(sequence) :] = sequence
        yield Chunk(first, rows, np.array([review.label for review in some], np.uint8))


def _tokens_of_words(reviews: Sequence[_Review], words: int, source: Path) -> dict[str, int]:
    """The commonest first; of those that are as common, in the order of the alphabet."""
    counts: Counter[str] = Counter()
    for review in reviews:
        counts.update(_words(review.text))
        if len(counts) > _MOST_WORDS:
            raise BadInput(f"{source}: its reviews have more than {_MOST_WORDS:,} different words; {REMEDY}")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: token for token, (word, _) in enumerate(ranked[: max(0, words - _FIRST_WORD)], _FIRST_WORD)}


def _words(text: bytes) -> list[str]:
    return _WORD.findall(text.decode("utf-8", "replace").lower().replace("<br />", " "))


def _sequence(text: bytes, tokens: dict[str, int], words: int, buckets: int) -> NDArray[np.int64]:
    one = np.array([_BEGIN, *(tokens.get(word, _RARE) for word in _words(text))], np.int64)
    if buckets <= 0:
        return one
    # Any hash will do that spreads neighbouring numbers; this is Knuth's, by 2^32 over the golden ratio. The
    # product's high bits depend on the whole pair, its low ones only on the pair's low ones.
    pairs = (one[:-1] * words + one[1:]) * 2_654_435_769 % (1 << 32) * buckets >> 32
    return np.concatenate([one, words + pairs])


class _Reviews:
    """Those of each split, until they are more than there can be."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.of: dict[str, list[_Review]] = {split: [] for split in splits}
        self._left = _MOST_TEXT

    def add(self, match: re.Match[str], text: bytes, place: str) -> None:
        """One more, which is called as `match` says, with no more than one byte too many."""
        split, sentiment, number = match.groups()
        if len(text) > _LARGEST_REVIEW:
            raise BadInput(f"{place} is no review: it has more than {_LARGEST_REVIEW:,} bytes")
        if len(self.of[split]) == _MOST_REVIEWS:
            raise BadInput(f"{place}: more than {_MOST_REVIEWS:,} reviews, where IMDb has 25,000")
        self._left -= len(text)
        if self._left < 0:
            raise BadInput(f"{place}: reviews up to here have more than {_MOST_TEXT:,} bytes; {REMEDY}")
        self.of[split].append(_Review(_SENTIMENTS.index(sentiment), int(number[:18]), text))


def _folder_reviews(folder: Path, splits: tuple[Split, ...]) -> _Reviews:
    found = _Reviews(splits)
    for split in splits:
        for sentiment in _SENTIMENTS:
            for path in (folder / split / sentiment).glob("*_*.txt"):
                match = _NAME.fullmatch(f"{FOLDER}/{split}/{sentiment}/{path.name}")
                if match and path.is_file():
                    with path.open("rb") as content:
                        found.add(match, content.read(_LARGEST_REVIEW + 1), str(path))
    return found


def _archive_reviews(archive: Path, splits: tuple[Split, ...]) -> _Reviews:
    """Read from the front to the end, nothing is extracted: what members call themselves cannot do harm."""
    found = _Reviews(splits)
    with GzipFile(archive) as unpacked:
        headers: Any = _Headers(unpacked, archive)  # tarfile asks for nothing but what it has
        with tarfile.open(fileobj=headers, mode="r:") as tar:
            members: Any = vars(tar)["members"]  # of all that were seen, which nobody needs
            for number, info in enumerate(tar):
                members.clear()
                if tar.offset > _LARGEST_UNPACKED:  # where the next one would be looked for, however far
                    raise BadInput(f"{archive}: {info.name} says that it has {info.size:,} bytes; {REMEDY}")
                if number == _MOST_MEMBERS or len(tar.pax_headers) > _MOST_PAIRS:
                    raise BadInput(f"{archive} has more in it than IMDb, at {info.name}; {REMEDY}")
                match = _NAME.fullmatch(info.name)
                if match and match[1] in found.of and info.isreg() and not info.issparse():
                    size = min(info.size, _LARGEST_REVIEW + 1)
                    unpacked.seek(info.offset_data)
                    if len(text := unpacked.read(size)) < size:
                        raise EOFError(f"it ends in {info.name}")
                    found.add(match, text, f"{archive}: {info.name}")
    return found


class _Headers:
    """What is unpacked, as tarfile reads it: a header here and there, of a size that headers have."""

    def __init__(self, unpacked: GzipFile, archive: Path) -> None:
        self._unpacked, self._archive = unpacked, archive
        self.seek, self.tell = unpacked.seek, unpacked.tell

    def read(self, size: int) -> bytes:
        """The next bytes; raises BadInput where no header has as many."""
        if size > _LARGEST_HEADER:
            raise BadInput(f"{self._archive}: a header of {size:,} bytes at {self.tell():,}; {REMEDY}")
        return self._unpacked.read(size)
