"""`imdb-bilstm` in Keras."""

from collections.abc import Mapping

import keras
import numpy as np
from keras import layers


def network() -> keras.Model:
    """The IMDb example of Keras 2: a bidirectional LSTM over embedded words."""
    return keras.Sequential([
        keras.Input((100,), dtype="int32"), layers.Embedding(20_000, 128),
        layers.Bidirectional(layers.LSTM(64)), layers.Dropout(0.5), layers.Dense(2),
    ])  # fmt: skip


def weights(start: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """initial_state.npz's in the order of Keras, which has (in, out) where initial_state.npz has (out, in)."""
    parts = [f"lstm.{way}{part}" for way in ("", "reverse_") for part in ("weight", "recurrent", "bias")]
    return [start["embedding.weight"], *(start[name].T for name in (*parts, "dense.weight", "dense.bias"))]
