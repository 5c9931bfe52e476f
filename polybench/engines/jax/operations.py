"""Operations of a layer and of a step in JAX, compiled separately for timing. This module imports JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import optax

from polybench.engines.base import Weights
from polybench.engines.jax.emitter import emit_layer
from polybench.engines.jax.network_code import has_buffers
from polybench.engines.job import Job
from polybench.engines.shared.program import import_program
from polybench.engines.shared.timed_operations import OperationCall
from polybench.networks.layers import Layer, Operation, Shape
from polybench.networks.timed_layers import TimedLayer


def layer_operations(
    timed_layer: TimedLayer, weights: Weights, x: Any, dy: Any, job: Job, folder: Path | None
) -> dict[Operation, OperationCall]:
    """Compile each operation of a layer separately; a call overhead is subtracted from each.

    A whole step is a single call. A gradient is the pullback of `jax.vjp`, with the saved forward pass. As in a step in
    bf16, layers get and return bfloat16.
    """
    if job.workload.precision == "bf16" and job.dtype == "float32":
        x, dy = (one if jnp.issubdtype(one.dtype, jnp.integer) else one.astype(jnp.bfloat16) for one in (x, dy))
    both, alone = (
        _network(layers, timed_layer.input_shape, job, folder)
        for layers in (timed_layer.layers, timed_layer.layers[:1])
    )
    tensors = jax.device_put(dict(weights), x.device)
    trained = {name: tensors[name] for name in timed_layer.weight_shapes()}
    buffers = {name: value for name, value in tensors.items() if name not in trained} | {"key": jax.random.key(0)}

    calls: dict[Operation, OperationCall] = {"forward": _operation(partial(both, buffers), trained, x)}
    if job.workload.is_forward_pass:
        return calls
    dz = dy
    if timed_layer.has_relu:
        calls["relu gradient"] = _gradient(jax.nn.relu, [alone(buffers, trained, x)], dy)
        (dz,) = calls["relu gradient"].run()
    for operation, wrt_input, wrt_weights in timed_layer.gradients():
        if wrt_input and wrt_weights:
            calls[operation] = _gradient(lambda x, trained: alone(buffers, trained, x), [x, trained], dz)
        elif wrt_input:
            calls[operation] = _gradient(lambda x: alone(buffers, trained, x), [x], dz)
        else:
            calls[operation] = _gradient(lambda trained: alone(buffers, trained, x), [trained], dz)
    return calls


def _network(layers: Sequence[Layer], shape: Shape, job: Job, folder: Path | None) -> Callable[..., Any]:
    """Return the function (buffers, params, x) -> output of these layers alone; the folder gets its program."""
    program = import_program(emit_layer(layers, shape, job), folder)
    if not has_buffers(layers):
        return lambda _, params, x: program.network(params, x)
    is_training = not job.workload.is_forward_pass
    return lambda buffers, params, x: program.network(params, buffers, x, training=is_training)[0]


def step_operations(
    program: ModuleType, state: Mapping[str, Any], logits: Any, labels: Any
) -> dict[Operation, OperationCall]:
    """Build the operations of a step outside of layers; the update uses a small constant gradient."""
    optimizer = program.make_optimizer(program.learning_rate(0)) if "step" in state else program.optimizer
    gradients = jax.tree.map(lambda weight: jnp.full_like(weight, 1e-3), state["params"])
    current = list(jax.tree.map(jnp.copy, (state["params"], state["optimizer"])))

    def apply_update(params: Any, state: Any, gradients: Any) -> Any:
        updates, new_state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), new_state

    compiled_update = jax.jit(apply_update, donate_argnums=(0, 1))

    def update() -> None:
        current[:] = jax.block_until_ready(compiled_update(*current, gradients))

    return {
        "loss": _operation(jax.value_and_grad(program.cross_entropy), logits, labels),
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
