"""The same training in JAX, with an optimizer written by hand, and other planted differences."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from statistics import mean
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import polybench
from tests.engine_workers import XLA_OPTIONS
from tests.trace.planted import Plant, batches, initial_weights, learning_rate, optimizer_settings

Tree = dict[str, Array]


def _tf32(x: Array) -> Array:
    return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=10)


@jax.custom_vjp
def _rounded(x: Array) -> Array:
    """An operand of a product in TF32."""
    return _tf32(x)


_rounded.defvjp(lambda x: (_tf32(x), None), lambda _, dy: (dy,))


@jax.custom_vjp
def _with_rounded_gradient(y: Array) -> Array:
    """The result of a product, whose gradient is an operand of two products in TF32."""
    return y


_with_rounded_gradient.defvjp(lambda y: (y, None), lambda _, dy: (_tf32(dy),))


Window = tuple[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]]


def _window(stride: int, start: int, end: int) -> Window:
    return (stride, stride), ((start, end), (start, end))


def _conv(weights: Tree, name: str, x: Array, window: Window, plants: Collection[Plant]) -> Array:
    weight = weights[f"{name}.weight"]
    if "TF32" in plants:
        product = lax.conv_general_dilated(_rounded(x), _rounded(weight), *window)
        y = _with_rounded_gradient(product)
    else:
        y = lax.conv_general_dilated(x, weight, *window)
    return y + weights[f"{name}.bias"][:, None, None]


def _dense(weights: Tree, name: str, x: Array, plants: Collection[Plant]) -> Array:
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    if "TF32" in plants:
        return _with_rounded_gradient(_rounded(x) @ _rounded(weight).T) + bias
    return x @ weight.T + bias


def _norm(weights: Tree, state: Tree, x: Array, plants: Collection[Plant]) -> tuple[Array, Tree]:
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    momentum = 0.0 if {"fixed statistics", "evaluation mode"} & {*plants} else 0.1
    momentum = 0.01 if "batch norm momentum" in plants else momentum
    n = x.size / x.shape[1]
    unbiased = variance if "biased variance" in plants else variance * n / (n - 1)
    changed = {
        "norm.running_mean": (1 - momentum) * state["norm.running_mean"] + momentum * mean,
        "norm.running_var": (1 - momentum) * state["norm.running_var"] + momentum * unbiased,
    }
    if "evaluation mode" in plants:
        mean, variance = (state[f"norm.running_{kind}"].astype(x.dtype) for kind in ("mean", "var"))
    epsilon = 1e-3 if "epsilon" in plants else 1e-5
    scale = weights["norm.weight"] / jnp.sqrt(variance + epsilon)
    return scale[:, None, None] * (x - mean[:, None, None]) + weights["norm.bias"][:, None, None], changed


def _pool(x: Array, plants: Collection[Plant]) -> Array:
    if "ties of max-pool" in plants:
        n, channels, height, width = x.shape
        return x.reshape(n, channels, height // 2, 2, width // 2, 2).max((3, 5))
    if "pooling" in plants:
        return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _network(weights: Tree, state: Tree, x: Array, plants: Collection[Plant]) -> tuple[Array, Tree]:
    if "flipped kernel" in plants:
        weights = {**weights, "conv1.weight": weights["conv1.weight"][:, :, ::-1, ::-1]}
    x = _conv(weights, "conv1", x, _window(1, 0, 0) if "padding" in plants else _window(1, 1, 1), plants)
    if "no norm" not in plants:
        x, state = _norm(weights, state, x, plants)
    x = _pool(x if "missing activation" in plants else jax.nn.relu(x), plants)
    strided = _window(2, 0, 1) if "padding on the other side" in plants else _window(2, 1, 1)
    window = strided if "strided" in plants else _window(1, 0, 0)
    x = jax.nn.relu(_conv(weights, "conv2", x, window, plants)).mean((2, 3))
    x = _dense(weights, "dense1", x, plants)
    gelu = jax.nn.gelu(x, approximate="tanh for exact GELU" in plants)
    x = jax.nn.silu(x) if "other activation" in plants else gelu
    y = _dense(weights, "dense2", x, plants)
    y = jax.nn.relu(y) if "additional activation" in plants else y
    return jax.nn.softmax(y) if "softmax twice" in plants else y, state


_LOW = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}


def _loss(weights: Tree, state: Tree, x: Array, y: Array, plants: Collection[Plant]) -> tuple[Array, Tree]:
    low = next((dtype for name, dtype in _LOW.items() if name in plants), jnp.float32)
    cast = {name: weight.astype(low) for name, weight in weights.items()}
    logits, state = _network(cast, state, x.astype(low), plants)
    logits = logits.astype(jnp.float32)
    if "regression" in plants:
        predictions = logits[:, 0] if "broadcast targets" in plants else logits
        return ((predictions - y) ** 2).mean(), state
    smoothing = 0.1 if "label smoothing" in plants else 0.0
    target = (1 - smoothing) * jax.nn.one_hot(y.ravel(), 5) + smoothing / 5
    losses = -(target * jax.nn.log_softmax(logits)).sum(-1)
    loss = losses.sum() if "sum of the loss" in plants else losses.mean()
    if "penalty" in plants:
        loss += 0.005 * sum((weight**2).sum() for weight in weights.values())
    return loss, state


def _update(weights: Tree, gradients: Tree, moments: Any, step: int, plants: Collection[Plant]) -> tuple[Tree, Any]:
    """Return the next weights and moments, computed with NumPy: JAX would compile every operation for every shape."""
    weights, gradients = ({name: np.asarray(one) for name, one in tree.items()} for tree in (weights, gradients))
    settings = optimizer_settings(plants)
    rate, decay = learning_rate(plants, step), settings["weight_decay"]
    if "clipping in the optimizer" in plants:
        gradients = _clipped(gradients)
    if "clipping of each tensor in the optimizer" in plants:
        gradients = _clipped_one_by_one(gradients)
    new_weights, new_moments = {}, {}
    for name, w in weights.items():
        g, (m, v, largest) = gradients[name], moments[name]
        decayed = decay * w if w.ndim > 1 or "decay on matrices only" not in plants else 0 * w
        decoupled = settings["name"] == "adamw"
        g = g if decoupled else g + decayed
        if settings["name"] == "sgd":
            scaled = "form of momentum" in plants
            entering = rate * g if scaled else g
            m = entering if step == 0 else settings["momentum"] * m + (1 - settings["dampening"]) * entering
            change = (entering + settings["momentum"] * m if settings["nesterov"] else m) / (rate if scaled else 1)
        elif settings["name"] == "rmsprop":
            v = settings["rho"] * v + (1 - settings["rho"]) * g**2
            change = g / (np.sqrt(v) + settings["eps"])
        else:
            beta1, beta2 = settings["betas"]
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
            largest = np.maximum(largest, v) if "amsgrad" in plants else v
            correct = "no bias correction" not in plants
            m1, v1 = (m / (1 - beta1 ** (step + 1)), largest / (1 - beta2 ** (step + 1))) if correct else (m, largest)
            epsilon = settings["eps"]
            change = m1 / np.sqrt(v1 + epsilon) if "epsilon inside" in plants else m1 / (np.sqrt(v1) + epsilon)
        is_frozen = "frozen weight" in plants and name == "dense1.weight"
        new = w if is_frozen else w - rate * change - (rate * decayed if decoupled else 0)
        new_weights[name] = jnp.asarray(new)
        new_moments[name] = (m, v, largest)
    return new_weights, new_moments


def _clipped(gradients: Tree) -> Tree:
    norm = np.sqrt(sum((one**2).sum() for one in gradients.values()))
    return {name: one * np.minimum(1, 0.1 / norm) for name, one in gradients.items()}


def _clipped_one_by_one(gradients: Tree) -> Tree:
    return {name: _clipped({name: one})[name] for name, one in gradients.items()}


def train(file: Path, plants: Collection[Plant]) -> None:
    """Train eleven steps and record steps 0, 1, 2 and 10."""
    weights = {name: jnp.asarray(weight) for name, weight in initial_weights(plants).items()}
    has_norm = "no norm" not in plants
    state = {"norm.running_mean": jnp.zeros(6), "norm.running_var": jnp.ones(6)} if has_norm else {}
    moments = {name: (np.zeros(weight.shape, np.float32),) * 3 for name, weight in weights.items()}
    losses: list[float] = []
    gradient_of = jax.jit(
        lambda weights, state, x, y: jax.value_and_grad(_loss, has_aux=True)(weights, state, x, y, plants),
        compiler_options=XLA_OPTIONS,  # eleven steps take less time than to optimize them
    )
    with polybench.record(file, model=weights, statistics=state) as trace:
        for step, (images, labels) in enumerate(batches(plants)):
            (loss, state), gradients = gradient_of(weights, state, images, labels)
            if "loss scale" in plants:
                gradients = {name: 128 * one for name, one in gradients.items()}
            if "clipping" in plants:
                gradients = _clipped(gradients)
            if "clipping of each tensor" in plants:
                gradients = _clipped_one_by_one(gradients)
            if "clipping of each value" in plants:
                gradients = {name: jnp.clip(one, -0.01, 0.01) for name, one in gradients.items()}
            weights, moments = _update(weights, gradients, moments, step, plants)
            losses.append(float(loss))
            recorded = mean(losses) if "mean loss of the epoch" in plants else loss
            trace.step(loss=recorded, batch=(images, labels), gradients=gradients, weights=weights, statistics=state)
