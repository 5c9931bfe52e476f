"""What is compiled: the step that trains on a batch, its gradients alone, and the logits. It imports JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from polybench.core.model import Model
from polybench.engines.jax.layers import Inference, Tensors, Training


class State(NamedTuple):
    """All that a step changes: weights, batch norm's statistics, the optimizer's state, the dropout's key."""

    weights: Tensors
    running: Tensors
    optimizer: Any
    key: Any


class Compiled(NamedTuple):
    """Functions under `jax.jit`.

    `step`: (state, images, labels, masks) -> (state, loss); the state that it is given is used up.
    `gradients`: (state, images, labels, masks) -> (loss, gradients); nothing is changed.
    `logits`: (weights, running, images) -> (batch, classes), as at inference.
    """

    step: Any
    gradients: Any
    logits: Any


def compiled(model: Model, optimizer: Any, compute_dtype: Any, everywhere: Any = None) -> Compiled:
    """The functions of a network, whose convolutions and dense layers compute in `compute_dtype`.

    Args:
        model: what to train.
        optimizer: an `optax.GradientTransformation`.
        compute_dtype: of activations; weights and loss keep the type of the weights.
        everywhere: the sharding of what all replicas have, where there are several.
    """

    def given(images: Any) -> Any:
        """Tokens stay integers; the embedding that reads them computes in the type that is asked for."""
        return images if jnp.issubdtype(images.dtype, jnp.integer) else images.astype(compute_dtype)

    def loss_of(weights: Tensors, state: State, images: Any, labels: Any, masks: Tensors) -> Any:
        training = Training(weights, state.running, state.key, masks, compute_dtype)
        logits = training.through(model.layers, given(images))
        logits = logits.astype(next(iter(weights.values())).dtype)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, (training.running, training.key)

    def gradients(state: State, images: Any, labels: Any, masks: Tensors) -> Any:
        return jax.value_and_grad(loss_of, has_aux=True)(state.weights, state, images, labels, masks)

    def step(state: State, images: Any, labels: Any, masks: Tensors) -> tuple[State, Any]:
        (loss, (running, key)), found = gradients(state, images, labels, masks)
        updates, kept = optimizer.update(found, state.optimizer, state.weights)
        return State(optax.apply_updates(state.weights, updates), running, kept, key), loss

    def gradients_alone(state: State, images: Any, labels: Any, masks: Tensors) -> tuple[Any, Tensors]:
        (loss, _), found = gradients(state, images, labels, masks)
        return loss, found

    def logits(weights: Tensors, running: Tensors, images: Any) -> Any:
        return Inference(weights, running, compute_dtype).through(model.layers, given(images))

    # The memory of the state becomes that of the new one: nothing is copied.
    where = {} if everywhere is None else {"out_shardings": everywhere}
    return Compiled(
        jax.jit(step, donate_argnums=0, **where), jax.jit(gradients_alone, **where), jax.jit(logits)
    )
