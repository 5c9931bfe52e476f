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
from collections.abc import Iterable, Iterator
from gzip import GzipFile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import BadInput
from polybench.data.chunks import Chunk, Split

ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
CLASSES = 2
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
_MOST_TEXT = 256 << 20
"""Characters of all reviews together, which are held; the official ones have a quarter of them."""
_MOST_REVIEWS = 150_000
_AT_ONCE = 1000


class _Review(NamedTuple):
    """Ordered by label and number, whatever the archive's order is."""

    label: int
    number: int
    text: str


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
    """
    wanted = _SPLITS[: _SPLITS.index(split) + 1]
    try:
        found = _folder_reviews(source, wanted) if source.is_dir() else _archive_reviews(source, wanted)
    except (EOFError, zlib.error, tarfile.TarError, ValueError, IndexError, RecursionError) as error:
        raise BadInput(f"{source} is truncated, damaged or no .tar.gz archive ({error}); {REMEDY}") from error
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {REMEDY}") from error
    for one in wanted:
        if {review.label for review in found[one]} != {0, 1}:
            raise BadInput(f"{source} is no IMDb, or not all of it: reviews in {one} missing; {REMEDY}")
    words = min(vocabulary, WORDS)
    tokens = _tokens_of_words((review.text for review in found["train"]), words)
    reviews = sorted(found[split])
    for first in range(0, len(reviews), _AT_ONCE):
        some = reviews[first : first + _AT_ONCE]
        rows = np.zeros((len(some), length), np.int32)
        for row, review in zip(rows, some, strict=True):
            sequence = _sequence(review.text, tokens, words, vocabulary - words)[-length:]
            row[length - len(sequence) :] = sequence
        yield Chunk(first, rows, np.array([review.label for review in some], np.uint8))


def _tokens_of_words(texts: Iterable[str], words: int) -> dict[str, int]:
    """The commonest first; of those that are as common, in the order of the alphabet."""
    counts = Counter(word for text in texts for word in _words(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: token for token, (word, _) in enumerate(ranked[: max(0, words - _FIRST_WORD)], _FIRST_WORD)}


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("<br />", " "))


def _sequence(text: str, tokens: dict[str, int], words: int, buckets: int) -> NDArray[np.int64]:
    one = np.array([_BEGIN, *(tokens.get(word, _RARE) for word in _words(text))], np.int64)
    if buckets <= 0:
        return one
    # Any hash will do that spreads neighbouring numbers; this is Knuth's, by 2^32 over the golden ratio.
    pairs = (one[:-1] * words + one[1:]) * 2_654_435_769 % (1 << 32) % buckets
    return np.concatenate([one, words + pairs])


def _folder_reviews(folder: Path, splits: tuple[Split, ...]) -> dict[str, list[_Review]]:
    found: dict[str, list[_Review]] = {split: [] for split in splits}
    for split in splits:
        for sentiment in _SENTIMENTS:
            for path in (folder / split / sentiment).glob("*_*.txt"):
                match = _NAME.fullmatch(f"{FOLDER}/{split}/{sentiment}/{path.name}")
                if match and path.is_file():
                    with path.open("rb") as content:
                        _add(found, match, content, str(path))
    return found


def _archive_reviews(archive: Path, splits: tuple[Split, ...]) -> dict[str, list[_Review]]:
    """Read from the front to the end, nothing is extracted: what members call themselves cannot do harm."""
    found: dict[str, list[_Review]] = {split: [] for split in splits}
    with GzipFile(archive) as unpacked:
        bounded: Any = _Bounded(unpacked, archive)  # tarfile asks a stream for nothing but `read`
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            members: Any = vars(tar)["members"]  # of all that were seen, which nobody needs
            for info in tar:
                members.clear()
                if tar.offset > _LARGEST_UNPACKED:  # where the next one would be looked for, however far
                    raise BadInput(f"{archive}: {info.name} says that it has {info.size:,} bytes; {REMEDY}")
                match = _NAME.fullmatch(info.name)
                if not match or match[1] not in found or not info.isreg() or info.issparse():
                    continue
                if (content := tar.extractfile(info)) is not None:
                    _add(found, match, content, f"{archive}: {info.name}")
    return found


def _add(found: dict[str, list[_Review]], match: re.Match[str], content: IO[bytes], place: str) -> None:
    split, sentiment, number = match.groups()
    text = content.read(_LARGEST_REVIEW + 1)
    if len(text) > _LARGEST_REVIEW:
        raise BadInput(f"{place} is no review: it has more than {_LARGEST_REVIEW:,} bytes")
    if len(found[split]) == _MOST_REVIEWS:
        raise BadInput(f"{place}: more than {_MOST_REVIEWS:,} reviews, where IMDb has 25,000")
    label = _SENTIMENTS.index(sentiment)
    found[split].append(_Review(label, int(number[:18]), text.decode("utf-8", "replace")))
    if sum(len(reviews) for reviews in found.values()) % _AT_ONCE == 0:
        held = sum(len(review.text) for reviews in found.values() for review in reviews)
        if held > _MOST_TEXT:
            raise BadInput(f"{place}: reviews up to here have more than {_MOST_TEXT:,} characters; {REMEDY}")


class _Bounded:
    """What is unpacked, until it is more than there can be."""

    def __init__(self, unpacked: GzipFile, archive: Path) -> None:
        self._unpacked, self._archive = unpacked, archive
        self._left = _LARGEST_UNPACKED

    def read(self, size: int) -> bytes:
        """The next bytes; raises BadInput where they are too many."""
        content = self._unpacked.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise BadInput(f"{self._archive} unpacks to more than {_LARGEST_UNPACKED >> 30} GiB; {REMEDY}")
        return content
