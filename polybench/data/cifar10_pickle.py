"""Safe reading of the pickles of CIFAR-10's python version.

A pickle is a program. These pickles were written by Python 2 and need four names. Each name resolves to a
placeholder that only stores its arguments; every other name is rejected, so a pickle cannot call anything.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polybench.data.array_chunks import IMAGE_BYTES

_MAX_BYTES = 64 << 20
"""The official files have 31 MB; files rewritten by Python 3 have twice that, since its protocol 2 lacks
bytes."""

_MAX_OPERATIONS = 1_000_000
"""A file of this content has 30,000 (one per label, two per name), or 90,000 if Python 3 wrote it."""
_MAX_MEMO_INDEX = 1 << 20
"""Python allocates as many memo entries as the largest index in a pickle."""


class _PickleRef:
    """Stores the arguments and the state of an object that the pickle builds."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_PickleRef):
    pass


class _Dtype(_PickleRef):
    pass


def _encode(text: str, codec: str) -> bytes:
    if codec not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"unexpected encoding {codec!r}")
    return text.encode("latin1")


_ALLOWED_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED_NAMES:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return _ALLOWED_NAMES[module, name]


def read_pickle(content: IO[bytes], size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels (n, 3072) and labels (n,) of one file of `size` bytes.

    Raises:
        ValueError: it is not a pickle, refers to an unexpected name, or is not a batch of CIFAR-10.
    """
    if size > _MAX_BYTES:
        raise ValueError(f"{size} bytes, expected about 31 million")
    try:
        raw = content.read(_MAX_BYTES)
        _reject_bombs(raw)
        batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(f"its pickle cannot be read ({error})") from error
    if not isinstance(batch, dict):
        raise ValueError("its pickle is not a dictionary")
    # Keys are bytes if Python 2 wrote them, text if Python 3 did.
    fields = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    pixels, labels = _pixels(fields.get("data")), fields.get("labels")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise ValueError("`labels` is not a list of small integers")
    if len(labels) != len(pixels) or not labels:
        raise ValueError(f"{len(pixels)} images, {len(labels)} labels")
    return pixels, np.array(labels, np.uint8)


def _reject_bombs(raw: bytes) -> None:
    """Raise if unpickling would take far more memory than the pickle has bytes."""
    for number, (operation, argument, _) in enumerate(pickletools.genops(raw)):
        if number >= _MAX_OPERATIONS:
            raise pickle.UnpicklingError(f"more than {_MAX_OPERATIONS:,} operations")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > _MAX_MEMO_INDEX:
            raise pickle.UnpicklingError(f"a memo index of {argument:,}")


def _pixels(array: Any) -> NDArray[np.uint8]:
    """Return the content of a pickled array (n, 3072) with state (version, shape, dtype, Fortran order,
    bytes).
    """
    match array:
        case _Array(
            state=(int(), (int(), int(columns)), _Dtype(arguments=("u1" | b"u1", *_)), False | 0, bytes(raw))
        ) if columns == IMAGE_BYTES and len(raw) % IMAGE_BYTES == 0:
            return np.frombuffer(raw, np.uint8).reshape(-1, IMAGE_BYTES)
    raise ValueError(f"`data` is not a uint8 array of shape (n, {IMAGE_BYTES})")
