"""Sequences that nobody has to download: tokens as rare as words are, and characters as 0 and 1.

All of it is integer arithmetic on raw PCG64 bits, as in `synthetic`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import BadInput
from polybench.data.chunks import Chunk, Shape, Split

_AT_ONCE = 512
"""Sequences, whose random words fit a second-level cache where they are short."""
_WORDS_AT_ONCE = 1 << 20
"""Of them where they are long, for 8 MB."""
_VALUES_AT_ONCE = 1 << 24
"""Bytes of characters that are written out, where sequences are long or have many."""

_TELLING = 64
"""Tokens of a class that come more often in its sequences: every eighth is one of them."""

_FOLLOWERS = 8
"""Characters that may follow one: the first does half of the time, the second a quarter, and so on."""

LARGEST_VOCABULARY = 1 << 31
"""Of int32."""


def token_chunks(
    sequences: int, seed: int, split: Split, length: int, vocabulary: int, classes: int
) -> Iterator[Chunk]:
    """Sequences (n, length) of int32 tokens; sequence i has label i mod `classes`.

    How rare a token is doubles with each doubling of its number, as Zipf found it for words: each 2^k to
    2^(k + 1) - 1 is as likely, for all k together, as each other. An eighth are the class's own 64.
    """
    if classes > 256 or not 0 < vocabulary <= LARGEST_VOCABULARY:
        raise BadInput(
            f"no synthetic sequences of {vocabulary:,} tokens in {classes} classes: "
            f"there are {LARGEST_VOCABULARY:,} tokens and 256 classes at most"
        )
    bits = _bits(seed, split)
    starts = np.uint64(1) << np.arange(max(1, (vocabulary - 1).bit_length()), dtype=np.uint64)
    sizes = np.minimum(2 * starts, np.uint64(vocabulary + 1)) - starts
    at_once = max(1, min(_AT_ONCE, _WORDS_AT_ONCE // length))
    for first in range(0, sequences, at_once):
        labels = np.arange(first, min(first + at_once, sequences)) % classes
        raw = bits.random_raw(len(labels) * length).reshape(len(labels), length)
        # Which octave, where in it, and whether the token is one of the class's: bits that nobody else takes.
        octave = (raw >> np.uint64(48)) % np.uint64(len(starts))
        rare = starts[octave] + (raw & np.uint64(LARGEST_VOCABULARY - 1)) % sizes[octave]
        own = np.uint64(_TELLING) * labels[:, None].astype(np.uint64) + (raw & np.uint64(_TELLING - 1))
        telling = (raw >> np.uint64(40)) % np.uint64(8) == 0
        tokens = np.where(telling, own, rare - np.uint64(1)) % np.uint64(vocabulary)
        yield Chunk(first, tokens.astype(np.int32), labels.astype(np.uint8))


def character_chunks(sequences: int, seed: int, split: Split, shape: Shape, classes: int) -> Iterator[Chunk]:
    """Sequences (n, time, characters) of uint8, 255 at the character, else 0; labels are what follows.

    Every character has its own eight that may follow, of which some are likelier.
    """
    time, characters = shape
    if characters != classes or classes > 256:
        raise BadInput(
            f"no synthetic sequences of shape {shape} in {classes} classes: "
            "there are as many classes as characters, 256 at most"
        )
    table = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"characters")]))
    followers = (table.random_raw(characters * _FOLLOWERS) % np.uint64(characters)).astype(np.intp)
    followers = followers.reshape(characters, _FOLLOWERS)
    bits = _bits(seed, split)
    white = 255 * np.eye(characters, dtype=np.uint8)
    pieces = max(1, _VALUES_AT_ONCE // (time * characters))
    for first in range(0, sequences, _AT_ONCE):
        n = min(_AT_ONCE, sequences - first)
        raw = bits.random_raw(n * (time + 1)).reshape(time + 1, n)
        text = np.empty((n, time + 1), np.intp)
        text[:, 0] = raw[0] % np.uint64(characters)
        for at in range(1, time + 1):
            text[:, at] = followers[text[:, at - 1], _trailing_zeros(raw[at])]
        for start in range(0, n, pieces):
            some = text[start : start + pieces]
            yield Chunk(first + start, white[some[:, :-1]], some[:, -1].astype(np.uint8))


def _trailing_zeros(raw: NDArray[np.uint64]) -> NDArray[np.intp]:
    """How many of the lowest bits are 0, `_FOLLOWERS` - 1 at most: each one more is half as likely."""
    zeros = np.zeros(raw.shape, np.intp)
    for bit in range(1, _FOLLOWERS):
        zeros += raw & np.uint64((1 << bit) - 1) == 0
    return zeros


def _bits(seed: int, split: Split) -> np.random.PCG64:
    """The splits of a seed have no sequence in common."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"sequences")]))
    return bits.jumped() if split == "test" else bits
