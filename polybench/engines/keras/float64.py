"""Keras in float64, which it has for TensorFlow only: for the identity check, never for what is timed."""

from __future__ import annotations


def keep_float64(kept: bool) -> None:
    """Whether operations on float64 compute in it; Keras itself has them in float32 with other backends.

    Batch norm is one. Keras 3.15: `keras.src.backend.common.dtypes`, where `result_type` looks its answer up.
    """
    from keras.src.backend.common import dtypes

    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64" if kept else "float32"
