"""Compiled functions (training step, gradients only, logits) and optimizers. This module imports JAX.

optax 0.2.8 has the canonical formulas in `sgd` and, with `eps_in_sqrt=False`, in `rmsprop`. Weight decay is
added to the gradient if `add_decayed_weights` comes first, and no state contains the learning rate. optax's
`adam` computes 1 - 0.999^t in float32, which loses digits: the first steps are off by up to 1e-5, the whole
tolerance of the parity check.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from polybench.engines.jax.layers import Inference, Tensors, Training
from polybench.networks.model import Model
from polybench.networks.optimizers import ADAM_EPSILON, CLIP_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer


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

    The loss has the dtype of the weights. `state_sharding` is that of the state if there are several replicas.
    """

    def compute_loss(weights: Tensors, state: State, images: Any, labels: Any, masks: Tensors) -> Any:
        training = Training(weights, state.running, state.key, masks, compute_dtype)
        logits = training.apply(model.layers, cast_inputs(images, compute_dtype))
        logits = logits.astype(next(iter(weights.values())).dtype)
        return mean_loss(logits, labels, model.label_smoothing), (training.running, training.key)

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
        return Inference(weights, running, compute_dtype).apply(model.layers, cast_inputs(images, compute_dtype))

    # Donating the state lets the new state reuse its memory without a copy.
    shardings = {} if state_sharding is None else {"out_shardings": state_sharding}
    return CompiledFunctions(
        jax.jit(step, donate_argnums=0, **shardings), jax.jit(gradients_only, **shardings), jax.jit(logits)
    )


def cast_inputs(values: Any, compute_dtype: Any) -> Any:
    """Cast images to the compute dtype; tokens stay integers, and their embedding casts its output."""
    return values if jnp.issubdtype(values.dtype, jnp.integer) else values.astype(compute_dtype)


def mean_loss(logits: Any, labels: Any, label_smoothing: float) -> Any:
    """Compute the mean cross-entropy over all labels."""
    if not label_smoothing:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    one_hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    return optax.softmax_cross_entropy(logits, optax.smooth_labels(one_hot, label_smoothing)).mean()


def make_optimizer(optimizer: Optimizer) -> Any:
    """Make the `optax.GradientTransformation`; with a schedule, `set_learning_rate` changes its rate."""
    rule = partial(_rule, optimizer)
    if optimizer.has_schedule:
        return optax.inject_hyperparams(rule)(learning_rate=optimizer.learning_rate)
    return rule(learning_rate=optimizer.learning_rate)


def set_learning_rate(state: Any, rate: float) -> None:
    """Set the rate from the next step on in an optimizer state; without a schedule, do nothing."""
    if hasattr(state, "hyperparams"):  # the class of such a state depends on optax's version
        previous = state.hyperparams["learning_rate"]
        state.hyperparams["learning_rate"] = jax.device_put(jnp.asarray(rate, previous.dtype), previous.sharding)


def _rule(optimizer: Optimizer, learning_rate: Any) -> Any:
    decay, clip = optimizer.weight_decay, optimizer.gradient_clip
    clipped = (_clip_by_global_norm(clip),) if clip else ()
    decayed = (optax.add_decayed_weights(decay),) if decay and optimizer.name != "adamw" else ()
    return optax.chain(*clipped, *decayed, _without_decay(optimizer, learning_rate))


def _without_decay(optimizer: Optimizer, learning_rate: Any) -> Any:
    match optimizer.name:
        case "adam":
            return optax.chain(_scale_by_adam(optimizer.betas), optax.scale_by_learning_rate(learning_rate))
        case "adamw":  # as in optax.adamw
            matrices = partial(jax.tree.map, lambda weight: weight.ndim > 1)
            decayed = optax.add_decayed_weights(optimizer.weight_decay, matrices)
            return optax.chain(_scale_by_adam(optimizer.betas), decayed, optax.scale_by_learning_rate(learning_rate))
        case "rmsprop":
            return optax.rmsprop(learning_rate, RMSPROP_DECAY, RMSPROP_EPSILON, eps_in_sqrt=False)
        case "sgd" | "momentum" | "nesterov":
            return optax.sgd(learning_rate, optimizer.momentum, nesterov=optimizer.name == "nesterov")


def _clip_by_global_norm(largest: float) -> Any:
    """Make `optax.clip_by_global_norm` with the canonical formula, PyTorch's."""

    def update(gradients: Any, state: Any, _params: Any = None) -> tuple[Any, Any]:
        factor = jnp.minimum(1.0, largest / (optax.global_norm(gradients) + CLIP_EPSILON))
        return jax.tree.map(lambda g: g * factor, gradients), state

    return optax.GradientTransformation(optax.clip_by_global_norm(largest).init, update)


def _scale_by_adam(betas: Any) -> Any:
    """Make `optax.scale_by_adam` with bias corrections at the full precision of the weights' dtype."""
    beta_1, beta_2 = betas

    def update(gradients: Any, state: Any, _params: Any = None) -> tuple[Any, Any]:
        t = state.count + 1
        correction_1, correction_2 = (-jnp.expm1(t * math.log(beta)) for beta in betas)
        m = jax.tree.map(lambda m, g: beta_1 * m + (1 - beta_1) * g, state.mu, gradients)
        v = jax.tree.map(lambda v, g: beta_2 * v + (1 - beta_2) * g**2, state.nu, gradients)
        updates = jax.tree.map(lambda m, v: (m / correction_1) / (jnp.sqrt(v / correction_2) + ADAM_EPSILON), m, v)
        return updates, optax.ScaleByAdamState(t, m, v)

    return optax.GradientTransformation(optax.scale_by_adam().init, update)
