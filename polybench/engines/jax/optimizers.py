"""Optimizers of optax, and the canonical Adam. This module imports JAX.

optax 0.2.8 has the canonical formulas in `sgd` and, with `eps_in_sqrt=False`, in `rmsprop`. Weight decay is
added to the gradient if `add_decayed_weights` comes first, and no state contains the learning rate. optax's
`adam` computes 1 - 0.999^t in float32, which loses digits: the first steps are off by up to 1e-5, the whole
tolerance of the parity check.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from polybench.networks.optimizers import ADAM_BETAS, ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer


def make_optimizer(optimizer: Optimizer) -> Any:
    """Make the `optax.GradientTransformation`; with a schedule, `set_learning_rate` changes its rate."""
    rule = partial(_rule, optimizer)
    if optimizer.lr_schedule:
        return optax.inject_hyperparams(rule)(learning_rate=optimizer.learning_rate)
    return rule(learning_rate=optimizer.learning_rate)


def set_learning_rate(state: Any, rate: float) -> None:
    """Set the rate from the next step on in an optimizer state; without a schedule, do nothing."""
    if hasattr(state, "hyperparams"):  # the class of such a state depends on optax's version
        previous = state.hyperparams["learning_rate"]
        state.hyperparams["learning_rate"] = jax.device_put(jnp.asarray(rate, previous.dtype), previous.sharding)


def _rule(optimizer: Optimizer, learning_rate: Any) -> Any:
    decay = optimizer.weight_decay
    decayed = (optax.add_decayed_weights(decay),) if decay else ()
    return optax.chain(*decayed, _without_decay(optimizer, learning_rate))


def _without_decay(optimizer: Optimizer, learning_rate: Any) -> Any:
    match optimizer.name:
        case "adam":
            return optax.chain(_scale_by_adam(), optax.scale_by_learning_rate(learning_rate))
        case "rmsprop":
            return optax.rmsprop(learning_rate, RMSPROP_DECAY, RMSPROP_EPSILON, eps_in_sqrt=False)
        case "sgd" | "momentum" | "nesterov":
            return optax.sgd(learning_rate, optimizer.momentum, nesterov=optimizer.name == "nesterov")


def _scale_by_adam() -> Any:
    """Make `optax.scale_by_adam` with bias corrections at the full precision of the weights' dtype."""
    beta_1, beta_2 = ADAM_BETAS

    def update(gradients: Any, state: Any, _params: Any = None) -> tuple[Any, Any]:
        t = state.count + 1
        correction_1, correction_2 = (-jnp.expm1(t * math.log(beta)) for beta in ADAM_BETAS)
        m = jax.tree.map(lambda m, g: beta_1 * m + (1 - beta_1) * g, state.mu, gradients)
        v = jax.tree.map(lambda v, g: beta_2 * v + (1 - beta_2) * g**2, state.nu, gradients)
        updates = jax.tree.map(lambda m, v: (m / correction_1) / (jnp.sqrt(v / correction_2) + ADAM_EPSILON), m, v)
        return updates, optax.ScaleByAdamState(t, m, v)

    return optax.GradientTransformation(optax.scale_by_adam().init, update)
