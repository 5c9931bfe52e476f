"""Conversion of input arrays for an engine."""

from __future__ import annotations

import numpy as np

from polybench.engines.base import Array, Weights


def as_dtype(weights: Weights, dtype: str) -> dict[str, Array]:
    """Copy canonical weights to contiguous arrays of `dtype`."""
    return {name: np.array(value, dtype=dtype, order="C") for name, value in weights.items()}


def is_tokens(batch: Array) -> bool:
    """Return True for a batch of tokens: integers, which engines never convert to floating point."""
    return bool(np.issubdtype(batch.dtype, np.integer))


def as_input(batch: Array, dtype: str) -> Array:
    """Copy a batch for a network: pixels and features in `dtype`, tokens unchanged."""
    return np.array(batch, dtype=batch.dtype if is_tokens(batch) else dtype, order="C")


def prefault(batches: Array) -> None:
    """Read one value of every page of a memory-mapped file, so that timed steps have no page faults.

    Args:
        batches: memory-mapped batches, each in C order.
    """
    page_bytes = 4096
    for batch in batches:  # each batch is contiguous, even as a slice of a larger array
        batch.reshape(-1)[:: max(1, page_bytes // batches.itemsize)].sum()
