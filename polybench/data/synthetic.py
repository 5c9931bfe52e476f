"""Synthetic data that need no download, for every network: images with CIFAR-10's statistics, tokens like words,
characters, and features.

An image is a smooth field, like a photograph. Each channel has a grid of 4 x 4 random values plus a grid of
its class, interpolated to 32 x 32. Fine noise from a pool that all images share is added. For other input
shapes the field is interpolated further and cropped, and the noise is repeated.
Everything is integer arithmetic on raw PCG64 bits, so a seed yields the same bytes on every machine and with
every NumPy; the tests contain the golden SHA-256.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from polybench.data.array_chunks import CLASSES, IMAGE_BYTES, IMAGE_SHAPE, Chunk, Shape, Split
from polybench.errors import BadInput

IMAGES: dict[Split, int] = {"train": 50_000, "test": 10_000}
"""Number of images of CIFAR-10's shape; there are fewer larger images, so that the total size is the same."""

_CHUNK_BYTES = 100 * IMAGE_BYTES
"""Pixels per chunk: the intermediate fields fit in a second-level cache, which is twice as fast."""

_GRID = 4
_RANDOM_WORDS = 8
"""Random 64-bit words per image: 4 grids (brightness and three colours) of 4 x 4 bytes."""

_NOISE_IMAGES = 256

# CIFAR-10's channel means, .491 .482 .447, times 255. The gains, in 1/64, were determined empirically: after
# clipping to 0..255 the standard deviations are CIFAR-10's .247 .243 .262, to .006 whatever the seed.
_MEANS = (125, 123, 114)
_GAINS = (70, 69, 76)

Field = NDArray[np.int16]

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


def image_count(split: Split, shape: Shape = IMAGE_SHAPE) -> int:
    """Return the number of images of this shape; raise BadInput if a single one exceeds the total size."""
    total_bytes = IMAGES[split] * IMAGE_BYTES
    if math.prod(shape) > total_bytes:
        shape_text = " x ".join(map(str, shape))
        raise BadInput(
            f"no synthetic {split} data of {shape_text}: an input has {math.prod(shape):,} bytes, but all of"
            f" them at most {total_bytes:,}; choose a smaller input, or your own images with --data"
        )
    return min(IMAGES[split], total_bytes // math.prod(shape))


def image_chunks(
    images: int, seed: int, split: Split, shape: Shape = IMAGE_SHAPE, classes: int = CLASSES
) -> Iterator[Chunk]:
    """Yield synthetic images in order; image i has label i mod `classes`, which balances the classes.

    The splits of a seed share classes and noise, but no image. `shape` is (3, height, width), or (1, height, width),
    which is the red channel.
    """
    if len(shape) != 3 or shape[0] not in (1, 3) or classes > 256:
        raise BadInput(
            f"no synthetic images of shape {shape} in {classes} classes: "
            "expected (3, height, width) or (1, height, width), and at most 256 classes"
        )
    bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"synthetic")]))
    prototypes = _grids(_random_bytes(bits, classes * _RANDOM_WORDS))
    # Otherwise the mean image would depend on the seed.
    prototypes -= (prototypes.sum(axis=0, dtype=np.int32) // classes).astype(np.int16)
    noise_images = (_random_bytes(bits, _NOISE_IMAGES * 32 * 32 // 8) % 17).astype(np.int16).reshape(
        _NOISE_IMAGES, 1, 32, 32
    ) - 8
    if split == "test":
        bits = bits.jumped()
    channels, height, width = shape
    repeats = (1, 1, -(-height // 32), -(-width // 32))
    means = np.array(_MEANS, np.int16).reshape(3, 1, 1)
    batch_size = max(1, _CHUNK_BYTES // math.prod(shape))
    for first in range(0, images, batch_size):
        labels = np.arange(first, min(first + batch_size, images)) % classes
        raw = _random_bytes(bits, len(labels) * _RANDOM_WORDS)
        field = _upsample(_grids(raw) + prototypes[labels] // 2, height, width)
        # A byte that the grids also use selects the noise, which need not be independent of them.
        field += np.tile(noise_images[raw[:: 8 * _RANDOM_WORDS]], repeats)[..., :height, :width]
        field += means
        yield Chunk(first, np.clip(field[:, :channels], 0, 255).astype(np.uint8), labels.astype(np.uint8))


def _random_bytes(bits: np.random.PCG64, words: int) -> NDArray[np.uint8]:
    """Return (8 words,) bytes, the lowest byte of each word first."""
    return bits.random_raw(words).astype("<u8").view(np.uint8)


def _grids(raw: NDArray[np.uint8]) -> Field:
    """Return (n, 3, 4, 4), centred at 0: brightness for all channels, plus colour with half its amplitude."""
    values = 2 * raw.astype(np.int16).reshape(-1, 4, _GRID, _GRID) - 255
    gains = np.array(_GAINS, np.int16).reshape(3, 1, 1)
    # At most 1.5 * 255 * 76 = 29,070, which fits in 16 bits.
    return (values[:, :1] + values[:, 1:] // 2) * gains // 128


def _upsample(grids: Field, height: int, width: int) -> Field:
    """Upsample (n, 3, 4, 4) to (n, 3, height, width): double until it is large enough, then crop."""
    field = grids.swapaxes(2, 3)
    while field.shape[2] < width:
        field = _upsample2x(field)
    field = np.ascontiguousarray(field[:, :, :width].swapaxes(2, 3))
    while field.shape[2] < height:
        field = _upsample2x(field)
    return np.ascontiguousarray(field[:, :, :height])


def _upsample2x(field: Field) -> Field:
    """Upsample rows from h to 2 h linearly: 3/4 the nearest row, 1/4 the next, with borders repeated."""
    images, channels, height, width = field.shape
    padded = np.concatenate([field[:, :, :1], field, field[:, :, -1:]], axis=2)
    nearest = 3 * field + 2  # + 2, half of 4, rounds the division below
    upsampled = np.empty((images, channels, height, 2, width), np.int16)
    np.add(nearest, padded[:, :, :-2], out=upsampled[:, :, :, 0])
    np.add(nearest, padded[:, :, 2:], out=upsampled[:, :, :, 1])
    upsampled >>= 2
    return upsampled.reshape(images, channels, 2 * height, width)


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


def character_chunks(sequences: int, seed: int, split: Split, shape: Shape) -> Iterator[Chunk]:
    """Yield sequences (n, time, characters) of uint8, one-hot with 255; the label is the next character."""
    time, characters = shape
    _check_classes(characters)
    one_hot = 255 * np.eye(characters, dtype=np.uint8)
    batch_size = max(1, _VALUES_PER_CHUNK // (time * characters))
    for first, text in _texts(sequences, seed, split, time, characters):
        for start in range(0, len(text), batch_size):
            batch = text[start : start + batch_size]
            yield Chunk(first + start, one_hot[batch[:, :-1]], batch[:, -1].astype(np.uint8))


def feature_chunks(sequences: int, seed: int, split: Split, shape: Shape, classes: int) -> Iterator[Chunk]:
    """Yield sequences (n, time, features) of uint8; sequence i has label i mod `classes`.

    A value is three quarters noise and one quarter the value of its class for this feature.
    """
    _check_classes(classes)
    time, features = shape
    constants = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"features")]))
    of_classes = _random_bytes(constants, -(-classes * features // 8))[: classes * features]
    of_classes = of_classes.reshape(classes, 1, features).astype(np.uint16)
    bits = _bits(seed, split)
    batch_size = max(1, _VALUES_PER_CHUNK // (time * features))
    for first in range(0, sequences, batch_size):
        labels = np.arange(first, min(first + batch_size, sequences)) % classes
        values = len(labels) * time * features
        noise = _random_bytes(bits, -(-values // 8))[:values].reshape(-1, time, features)
        yield Chunk(
            first, ((of_classes[labels] + 3 * noise.astype(np.uint16)) // 4).astype(np.uint8), labels.astype(np.uint8)
        )


def with_labels_of_positions(chunks: Iterable[Chunk], positions: int) -> Iterator[Chunk]:
    """Yield the chunks with the label of each input at each of its positions."""
    for chunk in chunks:
        yield chunk._replace(labels=np.repeat(chunk.labels[:, None], positions, axis=1))


def _check_classes(classes: int) -> None:
    if classes > 256:
        raise BadInput(f"no synthetic sequences in {classes} classes: expected at most 256")


def text_chunks(sequences: int, seed: int, split: Split, length: int, characters: int) -> Iterator[Chunk]:
    """Yield sequences (n, length) of int32 characters; the label of each position is the next character."""
    _check_classes(characters)
    for first, text in _texts(sequences, seed, split, length, characters):
        yield Chunk(first, text[:, :-1].astype(np.int32), text[:, 1:].astype(np.uint8))


def _texts(
    sequences: int, seed: int, split: Split, length: int, characters: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield the number of the first sequence and some sequences of `length` + 1 characters.

    Each character has eight possible successors, of which some are likelier.
    """
    table = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(b"characters")]))
    successors = (table.random_raw(characters * _SUCCESSORS) % np.uint64(characters)).astype(np.intp)
    successors = successors.reshape(characters, _SUCCESSORS)
    bits = _bits(seed, split)
    for first in range(0, sequences, _SEQUENCES_PER_CHUNK):
        n = min(_SEQUENCES_PER_CHUNK, sequences - first)
        raw = bits.random_raw(n * (length + 1)).reshape(length + 1, n)
        text = np.empty((n, length + 1), np.intp)
        text[:, 0] = raw[0] % np.uint64(characters)
        for position in range(1, length + 1):
            text[:, position] = successors[text[:, position - 1], _trailing_zeros(raw[position])]
        yield first, text


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
