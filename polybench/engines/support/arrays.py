"""Arrays on their way to an engine."""

from __future__ import annotations

import numpy as np

from polybench.engines.base import Array, Weights


def as_dtype(weights: Weights, dtype: str) -> dict[str, Array]:
    """Contiguous copies of canonical weights in `dtype`."""
    return {name: np.array(value, dtype=dtype, order="C") for name, value in weights.items()}


def is_tokens(batch: Array) -> bool:
    """Whether these are tokens: integers, which no engine turns into another type of number."""
    return bool(np.issubdtype(batch.dtype, np.integer))


def as_input(batch: Array, dtype: str) -> Array:
    """A copy of what a network takes: pixels or features in `dtype`, tokens as they are."""
    return np.array(batch, dtype=batch.dtype if is_tokens(batch) else dtype, order="C")


def touch(batches: Array) -> None:
    """Read one value of every page of a mapped file, so that no page fault is left for the timed steps.

    Args:
        batches: each in C order.
    """
    page_bytes = 4096
    for batch in batches:  # which are contiguous, even where they are parts of larger ones
        batch.reshape(-1)[:: max(1, page_bytes // batches.itemsize)].sum()
