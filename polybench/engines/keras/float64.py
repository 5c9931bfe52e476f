"""float64 in Keras on all backends, for the parity check; Keras supports it on TensorFlow only."""

from __future__ import annotations


def set_float64_support(enabled: bool) -> None:
    """Select the dtype of operations on float64, such as batch norm: float64 if enabled, else float32.

    It changes the table that `keras.src.backend.common.dtypes.result_type` reads (Keras 3.15).
    """
    from keras.src.backend.common import dtypes

    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64" if enabled else "float32"
