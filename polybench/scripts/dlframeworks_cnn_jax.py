"""`dlframeworks-cnn` in JAX; its tensors have the names and layouts of initial_state.npz."""

import jax
import jax.numpy as jnp
from jax import Array, lax


def conv(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A convolution that keeps the image size, in the order of lax: channels first."""
    y = lax.conv_general_dilated(x, weights[f"{name}.weight"], (1, 1), "SAME")
    return y + weights[f"{name}.bias"][:, None, None]


def dense(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A dense layer, its weight (out, in)."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def max_pool(x: Array) -> Array:
    """The maxima of windows of 2 x 2."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def dropout(rate: float, key: Array, x: Array) -> Array:
    """Zeros with this probability, and the rest scaled up."""
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0)


def network(weights: dict[str, Array], state: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
    """The CNN of the DeepLearningFrameworks comparison: logits (batch, 10), and the next step's state.

    Images are (batch, 3, 32, 32); the state has the `key` that dropout draws from.
    """
    key, *keys = jax.random.split(state["key"], 4)
    x = conv(weights, "conv2", jax.nn.relu(conv(weights, "conv1", x)))
    x = dropout(0.25, keys[0], jax.nn.relu(max_pool(x)))
    x = conv(weights, "conv4", jax.nn.relu(conv(weights, "conv3", x)))
    x = dropout(0.25, keys[1], jax.nn.relu(max_pool(x)))
    x = jax.nn.relu(dense(weights, "dense1", x.reshape(len(x), -1)))
    x = dropout(0.5, keys[2], x)
    return dense(weights, "dense2", x), state | {"key": key}
