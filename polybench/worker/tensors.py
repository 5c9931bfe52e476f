"""Reads and writes the tensor files that messages name."""

from __future__ import annotations

from typing import Any

import numpy as np

from polybench.engines.base import Weights


def read_tensors(path: str) -> Weights:
    """Read tensors in canonical layout from an `.npz` file."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def write_tensors(path: str, tensors: Weights) -> None:
    """Write tensors to an `.npz` file."""
    arrays: dict[str, Any] = dict(tensors)
    np.savez(path, **arrays)
