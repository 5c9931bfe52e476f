"""A text file as sequences of characters, for networks that predict the next character at each position.

The characters of the file, sorted, are the tokens 0, 1, .... The first 90 % of the text are to train, the rest to test.
A sequence starts where the one before ends; its labels are its characters, one further.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polybench.data.array_chunks import Chunk, Split
from polybench.data.disk import read_regular_file
from polybench.errors import BadInput

_TRAIN_SHARE = 0.9
_MAX_BYTES = 1 << 30


def read(file: Path, split: Split, length: int, vocabulary: int) -> Iterator[Chunk]:
    """Yield all sequences of `length` characters of a split; BadInput if the file has too few, or other, characters."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise BadInput(f"--data {file} is too large: expected at most 1 GiB of text: use a part of it")
        text = read_regular_file(file, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"--data {file} is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}: expected a text file"
            f" in UTF-8: convert it with iconv -f ENCODING -t UTF-8 {file}"
        ) from None
    except OSError as error:
        raise BadInput(f"cannot read --data {file}: {error.strerror}: expected a text file") from None
    characters, tokens = np.unique(np.array(list(text), "U1"), return_inverse=True)
    if len(characters) > vocabulary:
        raise BadInput(
            f"--data {file} has {len(characters)} different characters, but this network takes {vocabulary}:"
            f" use a network file with vocabulary and classes = {len(characters)}"
        )
    train = int(_TRAIN_SHARE * len(tokens))
    part = tokens[:train] if split == "train" else tokens[train:]
    count = (len(part) - 1) // length
    if count < 1:
        raise BadInput(
            f"--data {file} has {len(part)} characters to {split}, but a sequence and its next character have"
            f" {length + 1}: expected a longer text"
        )
    inputs, labels = (part[first : first + count * length].reshape(count, length) for first in (0, 1))
    yield Chunk(0, inputs.astype(np.int32), labels.astype(np.uint8))
