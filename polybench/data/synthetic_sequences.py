"""Synthetic sequences that need no download: tokens with the frequencies of words, and one-hot characters.

Everything is integer arithmetic on raw PCG64 bits, as in `synthetic`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polybench.data.array_chunks import Chunk, Shape, Split
from polybench.errors import BadInput

_SEQUENCES_PER_CHUNK = 512
"""Short sequences per chunk, whose random words fit in a second-level cache."""
_RANDOM_WORDS_PER_CHUNK = 1 << 20
"""Maximum number of random words for long sequences: 8 MB."""
_VALUES_PER_CHUNK = 1 << 24
"""Maximum bytes of one-hot characters, for long sequences or many characters."""

_CLASS_TOKENS = 64
"""Tokens of a class that are more frequent in its sequences: every eighth token is one of them."""

_SUCCESSORS = 8
"""Characters that may follow a character: the first half of the time, the second a quarter, and so on."""

MAX_VOCABULARY = 1 << 31
"""Number of nonnegative int32 values."""


def token_chunks(
    sequences: int, seed: int, split: Split, length: int, vocabulary: int, classes: int
) -> Iterator[Chunk]:
    """Yield sequences (n, length) of int32 tokens; sequence i has label i mod `classes`.

    Frequencies follow Zipf's law, as for words: each octave of tokens, 2^k to 2^(k + 1) - 1, is equally
    likely. An eighth of the tokens are the class's own 64.
    """
    if classes > 256 or not 0 < vocabulary <= MAX_VOCABULARY:
        raise BadInput(
            f"no synthetic sequences of {vocabulary:,} tokens in {classes} classes: "
            f"expected at most {MAX_VOCABULARY:,} tokens and 256 classes"
        )
    bits = _bits(seed, split)
    starts = np.uint64(1) << np.arange(max(1, (vocabulary - 1).bit_length()), dtype=np.uint64)
    sizes = np.minimum(2 * starts, np.uint64(vocabulary + 1)) - starts
    batch_size = max(1, min(_SEQUENCES_PER_CHUNK, _RANDOM_WORDS_PER_CHUNK // length))
    for first in range(0, sequences, batch_size):
        labels = np.arange(first, min(first + batch_size, sequences)) % classes
        raw = bits.random_raw(len(labels) * length).reshape(len(labels), length)
        # The octave, the position in it, and the choice of a class token each use separate bits.
        octave = (raw >> np.uint64(48)) % np.uint64(len(starts))
        zipf_tokens = starts[octave] + (raw & np.uint64(MAX_VOCABULARY - 1)) % sizes[octave]
        class_tokens = np.uint64(_CLASS_TOKENS) * labels[:, None].astype(np.uint64) + (
            raw & np.uint64(_CLASS_TOKENS - 1)
        )
        is_class_token = (raw >> np.uint64(40)) % np.uint64(8) == 0
        tokens = np.where(is_class_token, class_tokens, zipf_tokens - np.uint64(1)) % np.uint64(vocabulary)
        yield Chunk(first, tokens.astype(np.int32), labels.astype(np.uint8))


def character_chunks(sequences: int, seed: int, split: Split, shape: Shape, classes: int) -> Iterator[Chunk]:
    """Yield sequences (n, time, characters) of uint8, one-hot with 255; the label is the next character.

    Each character has eight possible successors, of which some are likelier.
    """
    time, characters = shape
    if characters != classes or classes > 256:
        raise BadInput(
            f"no synthetic sequences of shape {shape} in {classes} classes: "
            "expected as many classes as characters, at most 256"
        )
    table = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"characters")]))
    successors = (table.random_raw(characters * _SUCCESSORS) % np.uint64(characters)).astype(np.intp)
    successors = successors.reshape(characters, _SUCCESSORS)
    bits = _bits(seed, split)
    one_hot = 255 * np.eye(characters, dtype=np.uint8)
    batch_size = max(1, _VALUES_PER_CHUNK // (time * characters))
    for first in range(0, sequences, _SEQUENCES_PER_CHUNK):
        n = min(_SEQUENCES_PER_CHUNK, sequences - first)
        raw = bits.random_raw(n * (time + 1)).reshape(time + 1, n)
        text = np.empty((n, time + 1), np.intp)
        text[:, 0] = raw[0] % np.uint64(characters)
        for position in range(1, time + 1):
            text[:, position] = successors[text[:, position - 1], _trailing_zeros(raw[position])]
        for start in range(0, n, batch_size):
            batch = text[start : start + batch_size]
            yield Chunk(first + start, one_hot[batch[:, :-1]], batch[:, -1].astype(np.uint8))


def _trailing_zeros(raw: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Count the lowest bits that are 0, at most `_SUCCESSORS` - 1: each further one is half as likely."""
    zeros = np.zeros(raw.shape, np.intp)
    for bit in range(1, _SUCCESSORS):
        zeros += raw & np.uint64((1 << bit) - 1) == 0
    return zeros


def _bits(seed: int, split: Split) -> np.random.PCG64:
    """Return the random bits of a split; the splits of a seed have no sequence in common."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"sequences")]))
    return bits.jumped() if split == "test" else bits
