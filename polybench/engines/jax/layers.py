"""Layers as functions of `jax.numpy` and `jax.lax`. This module imports JAX.

Images are channels first and kernels (out, in, height, width): the canonical layout and the default of
`lax.conv_general_dilated`. XLA chooses its own layout inside a compiled step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import jax
import jax.numpy as jnp
from jax import lax

from polybench.networks import layers as spec

Tensors = Mapping[str, Any]
"""JAX arrays by canonical name, `layer_name.tensor`."""

_RECURRENT: Mapping[str, Callable[[Any], Any]] = {
    "sigmoid": jax.nn.sigmoid,
    "hard_sigmoid": lambda x: jnp.clip(0.2 * x + 0.5, 0, 1),
}


class Inference:
    """Forward pass in inference mode: no dropout, batch norm with its `running` statistics.

    Weights have the dtype of training; convolutions and dense layers compute in the input's dtype. Embeddings return
    `compute_dtype`, by default the dtype of their weights.
    """

    def __init__(self, weights: Tensors, running: Tensors, compute_dtype: Any = None) -> None:
        self._weights, self._running = weights, running
        self._compute_dtype = compute_dtype

    def apply(self, layers: Sequence[spec.Layer], x: Any) -> Any:
        """Apply the layers in order."""
        for layer in layers:
            x = self.apply_layer(layer, x)
        return x

    def apply_layer(self, layer: spec.Layer, x: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - a line or two for each kind
        """Apply one layer to `x`: images, features, or sequences of features or tokens."""
        match layer:
            case spec.Conv():
                weight = self._weights[f"{layer.name}.weight"].astype(x.dtype)
                y = lax.conv_general_dilated(x, weight, (layer.stride,) * 2, [(layer.pad,) * 2] * 2)
                return y + self._per_channel(f"{layer.name}.bias", y) if layer.bias else y
            case spec.Dense():
                weight, bias = (self._weights[f"{layer.name}.{name}"] for name in ("weight", "bias"))
                return x @ weight.T.astype(x.dtype) + bias.astype(x.dtype)
            case spec.BatchNorm():
                return self._batch_norm(layer, x)
            case spec.Dropout():
                return self._dropout(layer, x)
            case spec.MaxPool():
                return lax.reduce_window(x, -jnp.inf, lax.max, *_window_arguments(layer))
            case spec.AveragePool():
                return lax.reduce_window(x, 0.0, lax.add, *_window_arguments(layer)) / layer.size**2
            case spec.GlobalAveragePool():
                return x.mean((2, 3))
            case spec.ReLU():
                return jax.nn.relu(x)
            case spec.Flatten():
                return x.reshape(len(x), -1)
            case spec.Residual():
                return self.apply(layer.body, x) + self.apply(layer.shortcut, x)
            case spec.Embedding():
                weight = self._weights[f"{layer.name}.weight"]
                return weight.astype(self._compute_dtype or weight.dtype)[x]
            case spec.LSTM():
                weights = {name: self._weights[f"{layer.name}.{name}"] for name in layer.weight_shapes()}
                return lstm(layer, weights, x)
            case spec.MeanOverTime():
                return x.mean(1)
            case _:
                assert_never(layer)

    def _per_channel(self, name: str, x: Any) -> Any:
        """Cast a weight with one entry per channel or feature to the dtype of `x`, shaped to broadcast."""
        return self._weights[name].astype(x.dtype).reshape(-1, *(1,) * (x.ndim - 2))

    def _batch_norm(self, layer: spec.BatchNorm, x: Any) -> Any:
        """Normalize in the weights' dtype, as Flax and PyTorch's autocast do, and return the dtype of `x`."""
        x_full = x.astype(self._weights[f"{layer.name}.weight"].dtype)
        statistics = self._statistics(layer, x_full)
        mean, variance = (value.reshape(-1, *(1,) * (x.ndim - 2)) for value in statistics)
        weight, bias = (self._per_channel(f"{layer.name}.{name}", x_full) for name in ("weight", "bias"))
        return (weight * (x_full - mean) * lax.rsqrt(variance + layer.epsilon) + bias).astype(x.dtype)

    def _statistics(self, layer: spec.BatchNorm, x: Any) -> tuple[Any, Any]:  # noqa: ARG002 - used in training
        return self._running[f"{layer.name}.running_mean"], self._running[f"{layer.name}.running_variance"]

    def _dropout(self, layer: spec.Dropout, x: Any) -> Any:  # noqa: ARG002
        return x


class Training(Inference):
    """Forward pass in training mode; it updates `running` and `key`, a `jax.random` key, for the next step.

    `masks` are fixed dropout masks by layer (`shared.batches.dropout_masks`). Other dropout layers draw from `key`.
    """

    def __init__(self, weights: Tensors, running: Tensors, key: Any, masks: Tensors, compute_dtype: Any = None) -> None:
        super().__init__(weights, running, compute_dtype)
        self.running, self.key = dict(running), key
        self._masks = masks

    def _statistics(self, layer: spec.BatchNorm, x: Any) -> tuple[Any, Any]:
        axes = (0, *range(2, x.ndim))
        mean, variance = x.mean(axes), x.var(axes)
        pixels = x.size // x.shape[1]
        batch = {"running_mean": mean, "running_variance": variance * (pixels / (pixels - 1))}
        for statistic, value in batch.items():
            name = f"{layer.name}.{statistic}"
            self.running[name] = (1 - layer.momentum) * self._running[name] + layer.momentum * value
        return mean, variance

    def _dropout(self, layer: spec.Dropout, x: Any) -> Any:
        if layer.name in self._masks:
            return x * self._masks[layer.name].astype(x.dtype)
        self.key, layer_key = jax.random.split(self.key)
        mask = jax.random.bernoulli(layer_key, 1 - layer.rate, x.shape)
        return jnp.where(mask, x / (1 - layer.rate), 0)


def _window_arguments(pool: spec.MaxPool | spec.AveragePool) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return window sizes, strides and padding for `lax.reduce_window`."""
    return (1, 1, pool.size, pool.size), (1, 1, pool.stride, pool.stride), "VALID"


def lstm(layer: spec.LSTM, weights: Mapping[str, Any], x: Any) -> Any:
    """Compute the layer's output for `x`, (batch, time, inputs), in the dtype of `x`."""
    forwards = _run_direction(layer, weights, x, "")
    if not layer.bidirectional:
        return forwards if layer.sequence else forwards[:, -1]
    backwards = _run_direction(layer, weights, x[:, ::-1], spec.REVERSE)
    if layer.sequence:
        return jnp.concatenate([forwards, backwards[:, ::-1]], axis=-1)
    return jnp.concatenate([forwards[:, -1], backwards[:, -1]], axis=-1)


def _run_direction(layer: spec.LSTM, weights: Mapping[str, Any], x: Any, direction: str) -> Any:
    """Compute the outputs of one direction, (batch, time, units), in reading order.

    A single product before the loop multiplies the inputs of all time steps.
    """
    cast = {name: value.astype(x.dtype) for name, value in weights.items()}
    inputs = x @ cast[f"{direction}weight"].T + cast[f"{direction}bias"]
    if layer.biases == 2:
        inputs = inputs + cast[f"{direction}recurrent_bias"]
    recurrent, s = cast[f"{direction}recurrent"].T, _RECURRENT[layer.recurrent_activation]

    def cell_step(carry: Any, rows: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(rows + h @ recurrent, len(spec.GATES), axis=-1)
        c = s(f) * c + s(i) * jnp.tanh(g)
        h = s(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), layer.units), x.dtype)
    _, outputs = lax.scan(cell_step, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)
