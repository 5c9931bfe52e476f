"""Compiled functions: training step, gradients only, and logits. This module imports JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from polybench.engines.jax.layers import Inference, Tensors, Training
from polybench.networks.model import Model


class State(NamedTuple):
    """Everything that a step changes: weights, batch norm statistics, optimizer state and dropout key."""

    weights: Tensors
    running: Tensors
    optimizer: Any
    key: Any


class CompiledFunctions(NamedTuple):
    """Functions under `jax.jit`.

    `step`: (state, images, labels, masks) -> (state, loss); the input state is donated.
    `gradients`: (state, images, labels, masks) -> (loss, gradients); no state changes.
    `logits`: (weights, running, images) -> (batch, classes), in inference mode.
    """

    step: Any
    gradients: Any
    logits: Any


def compile_functions(
    model: Model, optimizer: Any, compute_dtype: Any, state_sharding: Any = None
) -> CompiledFunctions:
    """Make the functions of a network; convolutions and dense layers compute in `compute_dtype`.

    Args:
        model: network to train.
        optimizer: an `optax.GradientTransformation`.
        compute_dtype: dtype of activations; the loss has the dtype of the weights.
        state_sharding: sharding of the state if there are several replicas.
    """

    def cast_inputs(images: Any) -> Any:
        """Cast images to the compute dtype; tokens stay integers, and their embedding casts its output."""
        return images if jnp.issubdtype(images.dtype, jnp.integer) else images.astype(compute_dtype)

    def compute_loss(weights: Tensors, state: State, images: Any, labels: Any, masks: Tensors) -> Any:
        training = Training(weights, state.running, state.key, masks, compute_dtype)
        logits = training.apply(model.layers, cast_inputs(images))
        logits = logits.astype(next(iter(weights.values())).dtype)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, (training.running, training.key)

    def gradients(state: State, images: Any, labels: Any, masks: Tensors) -> Any:
        return jax.value_and_grad(compute_loss, has_aux=True)(state.weights, state, images, labels, masks)

    def step(state: State, images: Any, labels: Any, masks: Tensors) -> tuple[State, Any]:
        (loss, (running, key)), grads = gradients(state, images, labels, masks)
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.weights)
        return State(optax.apply_updates(state.weights, updates), running, optimizer_state, key), loss

    def gradients_only(state: State, images: Any, labels: Any, masks: Tensors) -> tuple[Any, Tensors]:
        (loss, _), grads = gradients(state, images, labels, masks)
        return loss, grads

    def logits(weights: Tensors, running: Tensors, images: Any) -> Any:
        return Inference(weights, running, compute_dtype).apply(model.layers, cast_inputs(images))

    # Donating the state lets the new state reuse its memory without a copy.
    shardings = {} if state_sharding is None else {"out_shardings": state_sharding}
    return CompiledFunctions(
        jax.jit(step, donate_argnums=0, **shardings), jax.jit(gradients_only, **shardings), jax.jit(logits)
    )
