"""One layer in JAX: its forward pass and each of its gradients, alone. Imported where JAX is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import optax

from polybench.core.document.layers import Part
from polybench.core.layers import ReLU
from polybench.core.pieces import Piece
from polybench.engines.base import Weights
from polybench.engines.jax.layers import Tensors, Training
from polybench.engines.support.replay import Call


def calls(piece: Piece, weights: Weights, x: Any, dy: Any) -> dict[Part, Call]:
    """The parts of a layer, each compiled for itself, less an empty call: a step is a single one.

    A gradient is the second half of `jax.vjp`, which has what the first half kept.

    Args:
        piece: the layer.
        weights: all of its tensors, canonical, of the type of x.
        x: its input, on its device.
        dy: the gradient of its output.
    """
    placed = jax.device_put(dict(weights), x.device)
    trained = {name: placed[name] for name in piece.weight_shapes()}
    running = {name: value for name, value in placed.items() if name not in trained}

    def through(layers: Any, trained: Tensors, x: Any) -> Any:
        return Training(trained, running, jax.random.key(0), {}).through(layers, x)

    found: dict[Part, Call] = {
        "forward": _call(lambda trained, x: through(piece.layers, trained, x), trained, x)
    }
    alone, dz = piece.layers[:1], dy
    if piece.activated:
        z = through(alone, trained, x)
        found["activation"] = _gradient(lambda z: through([ReLU()], {}, z), [z], dy)
        (dz,) = found["activation"].do()
    for part, data, own in piece.gradients():
        if data and own:
            found[part] = _gradient(lambda x, trained: through(alone, trained, x), [x, trained], dz)
        elif data:
            found[part] = _gradient(lambda x: through(alone, trained, x), [x], dz)
        else:
            found[part] = _gradient(lambda trained: through(alone, trained, x), [trained], dz)
    return found


def step_calls(logits: Any, labels: Any, optimizer: Any, weights: Tensors, state: Any) -> dict[Part, Call]:
    """The parts of a step that belong to no layer; weights are updated with a small gradient.

    Args:
        logits: of a batch.
        labels: of that batch.
        optimizer: an `optax.GradientTransformation`.
        weights: which are copied.
        state: the optimizer's, which is copied too.
    """
    gradients = jax.tree.map(lambda weight: jnp.full_like(weight, 1e-3), weights)
    held = list(jax.tree.map(jnp.copy, (weights, state)))

    def loss(logits: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def new(weights: Tensors, state: Any, gradients: Tensors) -> Any:
        updates, kept = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), kept

    replace = jax.jit(new, donate_argnums=(0, 1))

    def update() -> None:
        held[:] = jax.block_until_ready(replace(*held, gradients))

    return {
        "loss": _call(jax.value_and_grad(loss), logits, labels),
        "update": Call(update, _empty()),
        "call": Call(_empty()),
    }


def _gradient(function: Callable[..., Any], inputs: list[Any], dy: Any) -> Call:
    """With respect to all inputs, behind a forward pass that was done before."""
    _, back = jax.vjp(function, *inputs)
    return _call(lambda back, dy: back(dy), back, dy)


def _call(function: Callable[..., Any], *arguments: Any) -> Call:
    return Call(_compiled(function, *arguments), _empty())


def _compiled(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """JAX returns before it is done, so the call waits."""
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))


@cache
def _empty() -> Callable[[], Any]:
    one = jnp.ones(1)
    return _compiled(lambda *_: jnp.zeros(()), one, one)
