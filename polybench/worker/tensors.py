"""Tensors on their way through files: no message carries them."""

from __future__ import annotations

from typing import Any

import numpy as np

from polybench.engines.base import Weights


def read_tensors(path: str) -> Weights:
    """Those of an `.npz` file, canonical."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def write_tensors(path: str, tensors: Weights) -> None:
    """As an `.npz` file."""
    arrays: dict[str, Any] = dict(tensors)
    np.savez(path, **arrays)
