"""An LSTM as a `lax.scan` over time. It imports JAX, so it is imported late.

The products with the inputs are one product for all times, in front of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from polybench.core.sequence_layers import GATES, LSTM, REVERSE


def lstm(layer: LSTM, weights: Mapping[str, Any], x: Any) -> Any:
    """What comes out of the layer.

    Args:
        layer: of which `weights` has all parts, canonical, in the type that they are trained in.
        weights: by part.
        x: (batch, time, inputs), in whose type it computes.
    """
    forwards = _through(layer, weights, x, "")
    if not layer.bidirectional:
        return forwards if layer.sequence else forwards[:, -1]
    backwards = _through(layer, weights, x[:, ::-1], REVERSE)
    if layer.sequence:
        return jnp.concatenate([forwards, backwards[:, ::-1]], axis=-1)
    return jnp.concatenate([forwards[:, -1], backwards[:, -1]], axis=-1)


def _through(layer: LSTM, weights: Mapping[str, Any], x: Any, direction: str) -> Any:
    """The outputs of one direction, (batch, time, units), in the order in which it reads."""
    cast = {part: value.astype(x.dtype) for part, value in weights.items()}
    inputs = x @ cast[f"{direction}weight"].T + cast[f"{direction}bias"]
    if layer.biases == 2:
        inputs = inputs + cast[f"{direction}recurrent_bias"]
    recurrent, s = cast[f"{direction}recurrent"].T, _RECURRENT[layer.recurrent_activation]

    def moment(carry: Any, rows: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(rows + h @ recurrent, len(GATES), axis=-1)
        c = s(f) * c + s(i) * jnp.tanh(g)
        h = s(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), layer.units), x.dtype)
    _, outputs = lax.scan(moment, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)


_RECURRENT: Mapping[str, Callable[[Any], Any]] = {
    "sigmoid": jax.nn.sigmoid,
    "hard_sigmoid": lambda x: jnp.clip(0.2 * x + 0.5, 0, 1),
}
