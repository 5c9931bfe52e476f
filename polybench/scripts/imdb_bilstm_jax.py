"""`imdb-bilstm` in JAX; its tensors have the names and layouts of initial_state.npz."""

import jax
import jax.numpy as jnp
from jax import Array, lax


def lstm(weights: dict[str, Array], name: str, x: Array) -> Array:
    """The last output (batch, units) of an LSTM over x (batch, time, features); gates: i, f, g, o."""
    recurrent = weights[f"{name}recurrent"].T
    inputs = x @ weights[f"{name}weight"].T + weights[f"{name}bias"]

    def moment(carry: tuple[Array, Array], rows: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, g, o = jnp.split(rows + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), len(recurrent)), x.dtype)
    _, outputs = lax.scan(moment, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs[-1]


def dropout(rate: float, key: Array, x: Array) -> Array:
    """Zeros with this probability, and the rest scaled up."""
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0)


def network(weights: dict[str, Array], state: dict[str, Array], tokens: Array) -> tuple[Array, dict[str, Array]]:
    """The IMDb example of Keras 2: logits (batch, 2) of tokens (batch, time), and the next step's state."""
    key, drawn = jax.random.split(state["key"])
    x = weights["embedding.weight"][tokens]
    x = jnp.concatenate([lstm(weights, "lstm.", x), lstm(weights, "lstm.reverse_", x[:, ::-1])], axis=-1)
    x = dropout(0.5, drawn, x)
    return x @ weights["dense.weight"].T + weights["dense.bias"], {"key": key}
