"""IMDb's reviews as their authors publish them: an archive of text files, or the folder that it unpacks to.

`aclImdb/train/pos/0_9.txt` and the like: 25,000 reviews to train with and as many to test, good and bad ones.
Maas et al., 2011: https://ai.stanford.edu/~amaas/data/sentiment/

They become tokens as in Keras's examples: words by how often the training set has them, from 4 on; 1 begins a
review, 2 is any rarer word. Where the network has more tokens than words, the pairs of neighbours follow the
words, each as the bucket of its hash. The last tokens count; 0 stands in front of a review that has fewer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import BadInput
from polybench.data.chunks import Chunk, Split
from polybench.data.imdb_reviews import REMEDY, Review, read_reviews

CLASSES = 2
FEWEST_TOKENS = 3
"""What stands in front of a short review, what begins one, and what is any word."""
WORDS = 20_000
"""As many as Keras's examples tell apart, with what is no word."""
_BEGIN, _RARE, _FIRST_WORD = 1, 2, 4
_SPLITS: tuple[Split, Split] = ("train", "test")
_WORD = re.compile(r"[a-z0-9']+")

_MOST_WORDS = 1 << 21
"""Different ones; the official reviews have a twentieth of them."""
_TOKENS_AT_ONCE = 1 << 19


def read(source: Path, split: Split, length: int, vocabulary: int) -> Iterator[Chunk]:
    """The reviews of one split as sequences of `length` tokens below `vocabulary`.

    Args:
        source: what `imdb_reviews.locate` found.
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
    found = read_reviews(source, wanted)
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


def _tokens_of_words(reviews: Sequence[Review], words: int, source: Path) -> dict[str, int]:
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
