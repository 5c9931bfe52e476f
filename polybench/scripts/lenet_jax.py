"""`lenet` in JAX; its tensors have the names and layouts of initial_state.npz."""

import jax
import jax.numpy as jnp
from jax import Array, lax


def conv(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A convolution without padding, in the order of lax: channels first."""
    y = lax.conv_general_dilated(x, weights[f"{name}.weight"], (1, 1), "VALID")
    return y + weights[f"{name}.bias"][:, None, None]


def dense(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A dense layer, its weight (out, in)."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def max_pool(x: Array) -> Array:
    """The maxima of windows of 2 x 2."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def network(weights: dict[str, Array], state: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
    """The CNN of Flux's tutorial: logits (batch, 10) of images (batch, 3, 32, 32), and an unchanged state."""
    x = max_pool(jax.nn.relu(conv(weights, "conv1", x)))
    x = max_pool(jax.nn.relu(conv(weights, "conv2", x)))
    x = x.reshape(len(x), -1)
    for name in ("dense1", "dense2", "dense3"):
        x = dense(weights, name, x)
    return x, state
