"""IMDb's reviews as tokens, as in Keras's examples.

Words are numbered by their frequency in the training set, starting at 4; 1 starts a review, 2 is any rarer
word. If the network has more tokens than words, hash buckets of pairs of adjacent words follow the words. A
sequence has the last tokens of a review; 0 pads a shorter one at the front.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polybench.data.array_chunks import Chunk, Split
from polybench.data.imdb_archive import HINT, Review, read_reviews
from polybench.errors import BadInput

CLASSES = 2
MIN_TOKENS = 3
"""Padding, the start of a review, and any word."""
WORD_TOKENS = 20_000
"""The number of tokens in Keras's examples, including those that are not words."""
_START_TOKEN, _RARE_TOKEN, _FIRST_WORD = 1, 2, 4
_SPLITS: tuple[Split, Split] = ("train", "test")
_WORD = re.compile(r"[a-z0-9']+")

_MAX_WORDS = 1 << 21
"""Maximum number of different words; the official reviews have a twentieth of it."""
_TOKENS_PER_CHUNK = 1 << 19


def read(source: Path, split: Split, length: int, vocabulary: int) -> Iterator[Chunk]:
    """Yield the reviews of one split as sequences of `length` tokens below `vocabulary`.

    Args:
        source: result of `imdb_archive.locate`.
        split: "train" or "test"; the training reviews define the words of both.
        length: length of each sequence.
        vocabulary: number of the network's tokens.

    Raises:
        BadInput: the source is damaged, not IMDb, or unpacks to too many bytes; the message names the file.
            Or the network has too few tokens.
    """
    if vocabulary < MIN_TOKENS:
        raise BadInput(
            f"IMDb's reviews need at least {MIN_TOKENS} tokens (padding, start, any word),"
            f" but this network has {vocabulary}"
        )
    splits = _SPLITS[: _SPLITS.index(split) + 1]
    found = read_reviews(source, splits)
    words = min(vocabulary, WORD_TOKENS)
    tokens = _number_words(found.by_split["train"], words, source)
    reviews = sorted(found.by_split[split])
    batch_size = max(1, _TOKENS_PER_CHUNK // length)
    for first in range(0, len(reviews), batch_size):
        batch = reviews[first : first + batch_size]
        rows = np.zeros((len(batch), length), np.int32)
        for row, review in zip(rows, batch, strict=True):
            sequence = _encode(review.text, tokens, words, vocabulary - words)[-length:]
            row[length - len(sequence) :] = sequence
        yield Chunk(first, rows, np.array([review.label for review in batch], np.uint8))


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
    tokens_of_review = np.array(
        [_START_TOKEN, *(tokens.get(word, _RARE_TOKEN) for word in _split_words(text))], np.int64
    )
    if buckets <= 0:
        return tokens_of_review
    # Any hash that spreads adjacent numbers works; this is Knuth's, by 2^32 over the golden ratio. The
    # product's high bits depend on the whole pair, its low ones only on the pair's low ones.
    pairs = (tokens_of_review[:-1] * words + tokens_of_review[1:]) * 2_654_435_769 % (1 << 32) * buckets >> 32
    return np.concatenate([tokens_of_review, words + pairs])
