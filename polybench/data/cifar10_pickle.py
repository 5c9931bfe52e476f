"""The pickles of CIFAR-10's python version, read without trusting them.

A pickle is a program. These were written by Python 2 and need four names; each is answered by a stand-in
that only keeps what it is given, and every other name is refused, so no pickle can call anything.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polybench.data.chunks import IMAGE_BYTES

_LARGEST = 64 << 20
"""The official files have 31 MB; twice that, if Python 3 wrote them anew, whose protocol 2 has no bytes."""

_MOST_OPERATIONS = 1_000_000
"""A file of this content has 30,000 (one for each label, two for each name), 90,000 if Python 3 wrote it."""
_LARGEST_MEMO = 1 << 20
"""Python allocates as many places as the largest number that a pickle gives to one."""


class _Kept:
    """Keeps the arguments and the state of what the pickle builds."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Kept):
    pass


class _Dtype(_Kept):
    pass


def _encode(text: str, codec: str) -> bytes:
    if codec not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"bytes in the encoding {codec!r}")
    return text.encode("latin1")


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _NAMES[module, name]


def read_pickle(content: IO[bytes], size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pixels (n, 3072) and labels (n,) of one file of `size` bytes.

    Raises:
        ValueError: it is no pickle, one that asks for anything unusual, or not a batch of CIFAR-10.
    """
    if size > _LARGEST:
        raise ValueError(f"{size} bytes, expected about 31 million")
    try:
        raw = content.read(_LARGEST)
        _refuse_bombs(raw)
        batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(f"its pickle cannot be read ({error})") from error
    if not isinstance(batch, dict):
        raise ValueError("its pickle is no dictionary")
    # Keys are bytes as Python 2 wrote them, text if Python 3 did.
    parts = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    pixels, labels = _pixels(parts.get("data")), parts.get("labels")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise ValueError("`labels` is no list of small integers")
    if len(labels) != len(pixels) or not labels:
        raise ValueError(f"{len(pixels)} images, {len(labels)} labels")
    return pixels, np.array(labels, np.uint8)


def _refuse_bombs(raw: bytes) -> None:
    """Raise where reading would take far more memory than the pickle has bytes."""
    for number, (operation, argument, _) in enumerate(pickletools.genops(raw)):
        if number >= _MOST_OPERATIONS:
            raise pickle.UnpicklingError(f"more than {_MOST_OPERATIONS:,} operations")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > _LARGEST_MEMO:
            raise pickle.UnpicklingError(f"a memo of {argument:,} places")


def _pixels(array: Any) -> NDArray[np.uint8]:
    """What a pickled array (n, 3072) holds: its state is (version, shape, dtype, Fortran order, bytes)."""
    match array:
        case _Array(
            state=(int(), (int(), int(columns)), _Dtype(arguments=("u1" | b"u1", *_)), False | 0, bytes(raw))
        ) if columns == IMAGE_BYTES and len(raw) % IMAGE_BYTES == 0:
            return np.frombuffer(raw, np.uint8).reshape(-1, IMAGE_BYTES)
    raise ValueError(f"`data` is no uint8 array of shape (n, {IMAGE_BYTES})")
