"""The same training in JAX, with an optimizer written by hand, and other planted differences."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

import polybench
from tests.trace.planted import Plant, batches, initial_weights, optimizer_settings

Tree = dict[str, Array]


def _conv(weights: Tree, name: str, x: Array, pad: int) -> Array:
    padding = [(pad, pad), (pad, pad)]
    y = lax.conv_general_dilated(x, weights[f"{name}.weight"], (1, 1), padding)
    return y + weights[f"{name}.bias"][:, None, None]


def _norm(weights: Tree, state: Tree, x: Array, plants: Collection[Plant]) -> tuple[Array, Tree]:
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    momentum = 0.01 if "batch norm momentum" in plants else 0.1
    n = x.size / x.shape[1]
    unbiased = variance if "biased variance" in plants else variance * n / (n - 1)
    changed = {
        "norm.running_mean": (1 - momentum) * state["norm.running_mean"] + momentum * mean,
        "norm.running_var": (1 - momentum) * state["norm.running_var"] + momentum * unbiased,
    }
    epsilon = 1e-3 if "epsilon" in plants else 1e-5
    scale = weights["norm.weight"] / jnp.sqrt(variance + epsilon)
    return scale[:, None, None] * (x - mean[:, None, None]) + weights["norm.bias"][:, None, None], changed


def _network(weights: Tree, state: Tree, x: Array, plants: Collection[Plant]) -> tuple[Array, Tree]:
    if "flipped kernel" in plants:
        weights = {**weights, "conv1.weight": weights["conv1.weight"][:, :, ::-1, ::-1]}
    x, state = _norm(weights, state, _conv(weights, "conv1", x, 0 if "padding" in plants else 1), plants)
    x = x if "missing activation" in plants else jax.nn.relu(x)
    if "pooling" in plants:
        x = lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    else:
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = jax.nn.relu(_conv(weights, "conv2", x, 0)).mean((2, 3))
    x = x @ weights["dense1.weight"].T + weights["dense1.bias"]
    x = jax.nn.gelu(x, approximate="tanh for exact GELU" in plants)
    return x @ weights["dense2.weight"].T + weights["dense2.bias"], state


def _loss(weights: Tree, state: Tree, x: Array, y: Array, plants: Collection[Plant]) -> tuple[Array, Tree]:
    logits, state = _network(weights, state, x, plants)
    smoothing = 0.1 if "label smoothing" in plants else 0.0
    target = (1 - smoothing) * jax.nn.one_hot(y, 5) + smoothing / 5
    losses = -(target * jax.nn.log_softmax(logits)).sum(-1)
    loss = losses.sum() if "sum of the loss" in plants else losses.mean()
    if "penalty" in plants:
        loss += 0.005 * sum((weight**2).sum() for weight in weights.values())
    return loss, state


def _update(weights: Tree, gradients: Tree, moments: Any, step: int, plants: Collection[Plant]) -> tuple[Tree, Any]:
    settings = optimizer_settings(plants)
    rate, decay = settings["learning_rate"], settings["weight_decay"]
    new_weights, new_moments = {}, {}
    for name, w in weights.items():
        g, (m, v) = gradients[name], moments[name]
        decayed = decay * w if w.ndim > 1 or "decay on matrices only" not in plants else 0 * w
        decoupled = settings["name"] == "adamw"
        g = g if decoupled else g + decayed
        if settings["name"] == "sgd":
            m = g if step == 0 else settings["momentum"] * m + (1 - settings["dampening"]) * g
            change = g + settings["momentum"] * m if settings["nesterov"] else m
        else:
            beta1, beta2 = settings["betas"]
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
            correct = "no bias correction" not in plants
            m1, v1 = (m / (1 - beta1 ** (step + 1)), v / (1 - beta2 ** (step + 1))) if correct else (m, v)
            epsilon = settings["eps"]
            change = m1 / jnp.sqrt(v1 + epsilon) if "epsilon inside" in plants else m1 / (jnp.sqrt(v1) + epsilon)
        new_weights[name] = w - rate * change - (rate * decayed if decoupled else 0)
        new_moments[name] = (m, v)
    return new_weights, new_moments


def train(file: Path, plants: Collection[Plant]) -> None:
    """Train eleven steps and record steps 0, 1, 2 and 10."""
    weights = {name: jnp.asarray(weight) for name, weight in initial_weights(plants).items()}
    state = {"norm.running_mean": jnp.zeros(6), "norm.running_var": jnp.ones(6)}
    moments = {name: (jnp.zeros_like(weight), jnp.zeros_like(weight)) for name, weight in weights.items()}
    gradient_of = jax.jit(
        lambda weights, state, x, y: jax.value_and_grad(_loss, has_aux=True)(weights, state, x, y, plants)
    )
    with polybench.record(file, model=weights, statistics=state) as trace:
        for step, (images, labels) in enumerate(batches(plants)):
            (loss, state), gradients = gradient_of(weights, state, images, labels)
            if "clipping" in plants:
                norm = jnp.sqrt(sum((one**2).sum() for one in gradients.values()))
                gradients = {name: one * jnp.minimum(1, 0.1 / norm) for name, one in gradients.items()}
            weights, moments = _update(weights, gradients, moments, step, plants)
            trace.step(loss=loss, batch=(images, labels), gradients=gradients, weights=weights, statistics=state)
