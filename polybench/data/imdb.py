"""IMDb's reviews as tokens, as in Keras's examples: the published archive, or the folder that it unpacks to.

`aclImdb/train/pos/0_9.txt` and similar: 25,000 reviews each to train and to test, positive and negative.
Maas et al., 2011: https://ai.stanford.edu/~amaas/data/sentiment/

Words are numbered by their frequency in the training set, starting at 4; 1 starts a review, 2 is any rarer
word. If the network has more tokens than words, hash buckets of pairs of adjacent words follow the words. A
sequence has the last tokens of a review; 0 pads a shorter one at the front.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.data.array_chunks import Chunk, Split
from polybench.data.disk import open_regular_file
from polybench.errors import BadInput

ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
HINT = f"IMDb is {ARCHIVE}, or the folder {FOLDER} that it unpacks to"

_ARCHIVE_MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
"""The MD5 that torchtext uses to download it. No other archive is opened, so its headers need no limits."""

CLASSES = 2
MIN_TOKENS = 3
"""Padding, the start of a review, and any word."""
WORD_TOKENS = 20_000
"""The number of tokens in Keras's examples, including those that are not words."""
_START_TOKEN, _RARE_TOKEN, _FIRST_WORD = 1, 2, 4

_SPLITS: tuple[Split, Split] = ("train", "test")
_SENTIMENTS = ("neg", "pos")
"""Folders, by label."""
_NAME = re.compile(rf"{FOLDER}/(train|test)/(neg|pos)/(\d+)_\d+\.txt")
_WORD = re.compile(r"[a-z0-9']+")

_MAX_REVIEW_BYTES = 1 << 20
_MAX_TEXT_BYTES = 256 << 20
"""Maximum size of all reviews in memory; the official ones have a quarter of it."""
_MAX_WORDS = 1 << 21
"""Maximum number of different words; the official reviews have a twentieth of it."""
_TOKENS_PER_CHUNK = 1 << 19


class Review(NamedTuple):
    """A review; sorts by label and number, independent of the archive's order."""

    label: int
    number: int
    text: bytes
    """UTF-8; a string may take four times the memory."""


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


def read(source: Path, split: Split, length: int, vocabulary: int) -> Iterator[Chunk]:
    """Yield the reviews of one split as sequences of `length` tokens below `vocabulary`, at least `MIN_TOKENS`.

    The training reviews define the words of both splits. `locate` has found the source.

    Raises:
        BadInput: the source is not IMDb, too large, or cannot be read; the message names the file.
    """
    reviews = _read_reviews(source, _SPLITS[: _SPLITS.index(split) + 1])
    words = min(vocabulary, WORD_TOKENS)
    tokens = _number_words(reviews["train"], words, source)
    chosen = sorted(reviews[split])
    batch_size = max(1, _TOKENS_PER_CHUNK // length)
    for first in range(0, len(chosen), batch_size):
        batch = chosen[first : first + batch_size]
        rows = np.zeros((len(batch), length), np.int32)
        for row, review in zip(rows, batch, strict=True):
            sequence = _encode(review.text, tokens, words, vocabulary - words)[-length:]
            row[length - len(sequence) :] = sequence
        yield Chunk(first, rows, np.array([review.label for review in batch], np.uint8))


def _read_reviews(source: Path, splits: Sequence[Split]) -> dict[str, list[Review]]:
    """Return the reviews of these splits, in any order."""
    reviews: dict[str, list[Review]] = {split: [] for split in splits}
    total = 0
    try:
        for name, text in _folder_files(source, splits) if source.is_dir() else _archive_files(source):
            match = _NAME.fullmatch(name)
            if match is None or match[1] not in splits:
                continue
            total += len(text)
            if len(text) > _MAX_REVIEW_BYTES:
                raise BadInput(f"{source}: {name} is not a review: it has more than {_MAX_REVIEW_BYTES:,} bytes")
            if total > _MAX_TEXT_BYTES:
                raise BadInput(f"{source}: the reviews up to {name} have more than {_MAX_TEXT_BYTES:,} bytes; {HINT}")
            reviews[match[1]].append(Review(_SENTIMENTS.index(match[2]), int(match[3][:18]), text))
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror or error}; {HINT}") from error
    for split in splits:
        if {review.label for review in reviews[split]} != {0, 1}:
            raise BadInput(f"{source} is not IMDb, or incomplete: reviews in {split} missing; {HINT}")
    return reviews


def _folder_files(folder: Path, splits: Sequence[Split]) -> Iterator[tuple[str, bytes]]:
    for part in (f"{split}/{sentiment}" for split in splits for sentiment in _SENTIMENTS):
        for path in (folder / part).glob("*_*.txt"):
            if path.is_file():
                with open_regular_file(path) as file:
                    yield f"{FOLDER}/{part}/{path.name}", file.read(_MAX_REVIEW_BYTES + 1)


def _archive_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    with open_regular_file(archive) as file:
        found = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if found != _ARCHIVE_MD5:
        raise BadInput(
            f"{archive} is not the published {ARCHIVE} (its MD5 is {found}): give the folder that it unpacks to"
        )
    with tarfile.open(archive, "r|gz") as tar:  # nothing is extracted
        while (member := tar.next()) is not None:
            vars(tar)["members"].clear()  # it would grow by 100 MB
            if _NAME.fullmatch(member.name) and (content := tar.extractfile(member)):
                yield member.name, content.read()


def _number_words(reviews: Sequence[Review], words: int, source: Path) -> dict[str, int]:
    """Number the words by descending frequency, and alphabetically if equally frequent."""
    counts: Counter[str] = Counter()
    for review in reviews:
        counts.update(_split_words(review.text))
        if len(counts) > _MAX_WORDS:
            raise BadInput(f"{source}: its reviews have more than {_MAX_WORDS:,} different words; {HINT}")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: token for token, (word, _) in enumerate(ranked[: max(0, words - _FIRST_WORD)], _FIRST_WORD)}


def _split_words(text: bytes) -> list[str]:
    return _WORD.findall(text.decode("utf-8", "replace").lower().replace("<br />", " "))


def _encode(text: bytes, tokens: dict[str, int], words: int, buckets: int) -> NDArray[np.int64]:
    numbers = (tokens.get(word, _RARE_TOKEN) for word in _split_words(text))
    tokens_of_review = np.array([_START_TOKEN, *numbers], np.int64)
    if buckets <= 0:
        return tokens_of_review
    # Any hash that spreads adjacent numbers works; this is Knuth's, by 2^32 over the golden ratio. The
    # product's high bits depend on the whole pair, its low ones only on the pair's low ones.
    pairs = (tokens_of_review[:-1] * words + tokens_of_review[1:]) * 2_654_435_769 % (1 << 32) * buckets >> 32
    return np.concatenate([tokens_of_review, words + pairs])
