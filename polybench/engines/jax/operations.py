"""Operations of a layer and of a step in JAX, compiled separately for timing. This module imports JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import optax

from polybench.engines.base import Weights
from polybench.engines.jax.layers import Inference, Tensors, Training
from polybench.engines.jax.training import mean_loss
from polybench.engines.shared.timed_operations import OperationCall
from polybench.networks.layers import Operation, ReLU
from polybench.networks.timed_layers import TimedLayer


def layer_operations(
    timed_layer: TimedLayer, weights: Weights, x: Any, dy: Any, compute_dtype: Any, *, is_forward_pass: bool
) -> dict[Operation, OperationCall]:
    """Compile each operation of a layer separately; a call overhead is subtracted from each.

    A whole step is a single call. A gradient is the pullback of `jax.vjp`, with the saved forward pass. As in a step,
    layers get and return values of the `compute_dtype`.
    """
    tensors = jax.device_put(dict(weights), x.device)
    trained = {name: tensors[name] for name in timed_layer.weight_shapes()}
    running = {name: value for name, value in tensors.items() if name not in trained}

    def apply(layers: Any, trained: Tensors, x: Any) -> Any:
        if is_forward_pass:
            return Inference(trained, running, compute_dtype).apply(layers, x)
        return Training(trained, running, jax.random.key(0), {}, compute_dtype).apply(layers, x)

    calls: dict[Operation, OperationCall] = {
        "forward": _operation(lambda trained, x: apply(timed_layer.layers, trained, x), trained, x)
    }
    if is_forward_pass:
        return calls
    layer, dz = timed_layer.layers[:1], dy
    if timed_layer.has_relu:
        z = apply(layer, trained, x)
        calls["relu gradient"] = _gradient(lambda z: apply([ReLU()], {}, z), [z], dy)
        (dz,) = calls["relu gradient"].run()
    for operation, wrt_input, wrt_weights in timed_layer.gradients():
        if wrt_input and wrt_weights:
            calls[operation] = _gradient(lambda x, trained: apply(layer, trained, x), [x, trained], dz)
        elif wrt_input:
            calls[operation] = _gradient(lambda x: apply(layer, trained, x), [x], dz)
        else:
            calls[operation] = _gradient(lambda trained: apply(layer, trained, x), [trained], dz)
    return calls


def step_operations(
    logits: Any, labels: Any, optimizer: Any, weights: Tensors, state: Any, label_smoothing: float
) -> dict[Operation, OperationCall]:
    """Build the operations of a step outside of layers; the update uses a small constant gradient."""
    gradients = jax.tree.map(lambda weight: jnp.full_like(weight, 1e-3), weights)
    current = list(jax.tree.map(jnp.copy, (weights, state)))

    def loss(logits: Any, labels: Any) -> Any:
        return mean_loss(logits, labels, label_smoothing)

    def apply_update(weights: Tensors, state: Any, gradients: Tensors) -> Any:
        updates, new_state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), new_state

    compiled_update = jax.jit(apply_update, donate_argnums=(0, 1))

    def update() -> None:
        current[:] = jax.block_until_ready(compiled_update(*current, gradients))

    return {
        "loss": _operation(jax.value_and_grad(loss), logits, labels),
        "update": OperationCall(update, _empty_call()),
        "call": OperationCall(_empty_call()),
    }


def _gradient(function: Callable[..., Any], inputs: list[Any], dy: Any) -> OperationCall:
    """Build the gradient with respect to all inputs, after a forward pass that is not timed."""
    _, pullback = jax.vjp(function, *inputs)
    return _operation(lambda pullback, dy: pullback(dy), pullback, dy)


def _operation(function: Callable[..., Any], *arguments: Any) -> OperationCall:
    return OperationCall(_compiled(function, *arguments), _empty_call())


def _compiled(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Compile a function into a call that waits for the result, since JAX is asynchronous."""
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))


@cache
def _empty_call() -> Callable[[], Any]:
    one = jnp.ones(1)
    return _compiled(lambda *_: jnp.zeros(()), one, one)
