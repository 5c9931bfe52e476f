"""LSTM as a `lax.scan` over time. This module imports JAX.

A single product before the loop multiplies the inputs of all time steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from polybench.networks.layers import GATES, LSTM, REVERSE


def lstm(layer: LSTM, weights: Mapping[str, Any], x: Any) -> Any:
    """Compute the layer's output.

    Args:
        layer: the LSTM.
        weights: its tensors by name, canonical layout, in the dtype of training.
        x: (batch, time, inputs); its dtype is the dtype of the computation.
    """
    forwards = _run_direction(layer, weights, x, "")
    if not layer.bidirectional:
        return forwards if layer.sequence else forwards[:, -1]
    backwards = _run_direction(layer, weights, x[:, ::-1], REVERSE)
    if layer.sequence:
        return jnp.concatenate([forwards, backwards[:, ::-1]], axis=-1)
    return jnp.concatenate([forwards[:, -1], backwards[:, -1]], axis=-1)


def _run_direction(layer: LSTM, weights: Mapping[str, Any], x: Any, direction: str) -> Any:
    """Compute the outputs of one direction, (batch, time, units), in reading order."""
    cast = {name: value.astype(x.dtype) for name, value in weights.items()}
    inputs = x @ cast[f"{direction}weight"].T + cast[f"{direction}bias"]
    if layer.biases == 2:
        inputs = inputs + cast[f"{direction}recurrent_bias"]
    recurrent, s = cast[f"{direction}recurrent"].T, _RECURRENT[layer.recurrent_activation]

    def cell_step(carry: Any, rows: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(rows + h @ recurrent, len(GATES), axis=-1)
        c = s(f) * c + s(i) * jnp.tanh(g)
        h = s(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), layer.units), x.dtype)
    _, outputs = lax.scan(cell_step, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)


_RECURRENT: Mapping[str, Callable[[Any], Any]] = {
    "sigmoid": jax.nn.sigmoid,
    "hard_sigmoid": lambda x: jnp.clip(0.2 * x + 0.5, 0, 1),
}
