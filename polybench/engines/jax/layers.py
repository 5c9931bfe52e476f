"""Layers as functions of `jax.numpy` and `jax.lax`. This module imports JAX.

Images are channels first and kernels (out, in, height, width): the canonical layout and the default of
`lax.conv_general_dilated`. XLA chooses its own layout inside a compiled step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import jax
import jax.numpy as jnp
from jax import lax

from polybench.engines.jax.recurrent import lstm
from polybench.networks.layers import (
    LSTM,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    MeanOverTime,
    ReLU,
    Residual,
)

Tensors = Mapping[str, Any]
"""JAX arrays by canonical name, `layer_name.tensor`."""


class Inference:
    """Forward pass in inference mode: no dropout, batch norm with its running statistics.

    Args:
        weights: weights in the dtype of training; convolutions and dense layers compute in the input's dtype.
        running: running statistics of batch norm.
        compute_dtype: output dtype of embeddings; None for the dtype of their weights.
    """

    def __init__(self, weights: Tensors, running: Tensors, compute_dtype: Any = None) -> None:
        self._weights, self._running = weights, running
        self._compute_dtype = compute_dtype

    def apply(self, layers: Sequence[Layer], x: Any) -> Any:
        """Apply the layers in order."""
        for layer in layers:
            x = self.apply_layer(layer, x)
        return x

    def apply_layer(self, layer: Layer, x: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - a line or two for each kind
        """Apply one layer to `x`: images, features, or sequences of features or tokens."""
        match layer:
            case Conv():
                weight = self._weights[f"{layer.name}.weight"].astype(x.dtype)
                y = lax.conv_general_dilated(x, weight, (layer.stride,) * 2, [(layer.pad,) * 2] * 2)
                return y + self._per_channel(f"{layer.name}.bias", y) if layer.bias else y
            case Dense():
                weight, bias = (self._weights[f"{layer.name}.{name}"] for name in ("weight", "bias"))
                return x @ weight.T.astype(x.dtype) + bias.astype(x.dtype)
            case BatchNorm():
                return self._batch_norm(layer, x)
            case Dropout():
                return self._dropout(layer, x)
            case MaxPool():
                return lax.reduce_window(x, -jnp.inf, lax.max, *_window_arguments(layer))
            case AveragePool():
                return lax.reduce_window(x, 0.0, lax.add, *_window_arguments(layer)) / layer.size**2
            case GlobalAveragePool():
                return x.mean((2, 3))
            case ReLU():
                return jax.nn.relu(x)
            case Flatten():
                return x.reshape(len(x), -1)
            case Residual():
                return self.apply(layer.body, x) + self.apply(layer.shortcut, x)
            case Embedding():
                weight = self._weights[f"{layer.name}.weight"]
                return weight.astype(self._compute_dtype or weight.dtype)[x]
            case LSTM():
                weights = {name: self._weights[f"{layer.name}.{name}"] for name in layer.weight_shapes()}
                return lstm(layer, weights, x)
            case MeanOverTime():
                return x.mean(1)
            case _:
                assert_never(layer)

    def _per_channel(self, name: str, x: Any) -> Any:
        """Cast a weight with one entry per channel or feature to the dtype of `x`, shaped to broadcast."""
        return self._weights[name].astype(x.dtype).reshape(-1, *(1,) * (x.ndim - 2))

    def _batch_norm(self, layer: BatchNorm, x: Any) -> Any:
        """Normalize in the weights' dtype, as Flax and PyTorch's autocast do, and return the dtype of `x`."""
        x_full = x.astype(self._weights[f"{layer.name}.weight"].dtype)
        statistics = self._statistics(layer, x_full)
        mean, variance = (value.reshape(-1, *(1,) * (x.ndim - 2)) for value in statistics)
        weight, bias = (self._per_channel(f"{layer.name}.{name}", x_full) for name in ("weight", "bias"))
        return (weight * (x_full - mean) * lax.rsqrt(variance + layer.epsilon) + bias).astype(x.dtype)

    def _statistics(self, layer: BatchNorm, x: Any) -> tuple[Any, Any]:  # noqa: ARG002 - used in training
        return self._running[f"{layer.name}.running_mean"], self._running[f"{layer.name}.running_variance"]

    def _dropout(self, layer: Dropout, x: Any) -> Any:  # noqa: ARG002
        return x


class Training(Inference):
    """Forward pass in training mode; it updates `running` and `key` for the next step.

    Args:
        masks: fixed dropout masks by layer (`engines.shared.dropout_masks`). Other dropout layers draw their
            masks from `key`, a `jax.random` key.
    """

    def __init__(self, weights: Tensors, running: Tensors, key: Any, masks: Tensors, compute_dtype: Any = None) -> None:
        super().__init__(weights, running, compute_dtype)
        self.running, self.key = dict(running), key
        self._masks = masks

    def _statistics(self, layer: BatchNorm, x: Any) -> tuple[Any, Any]:
        axes = (0, *range(2, x.ndim))
        mean, variance = x.mean(axes), x.var(axes)
        pixels = x.size // x.shape[1]
        batch = {"running_mean": mean, "running_variance": variance * (pixels / (pixels - 1))}
        for statistic, value in batch.items():
            name = f"{layer.name}.{statistic}"
            self.running[name] = (1 - layer.momentum) * self._running[name] + layer.momentum * value
        return mean, variance

    def _dropout(self, layer: Dropout, x: Any) -> Any:
        if layer.name in self._masks:
            return x * self._masks[layer.name].astype(x.dtype)
        self.key, layer_key = jax.random.split(self.key)
        mask = jax.random.bernoulli(layer_key, 1 - layer.rate, x.shape)
        return jnp.where(mask, x / (1 - layer.rate), 0)


def _window_arguments(pool: MaxPool | AveragePool) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return window sizes, strides and padding for `lax.reduce_window`."""
    return (1, 1, pool.size, pool.size), (1, 1, pool.stride, pool.stride), "VALID"
