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
from polybench.networks.sequence_layers import GATES, REVERSE

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
                stride = (layer.stride,) * 2
                y = lax.conv_general_dilated(x, weight, stride, layer.pads.axes, feature_group_count=layer.groups)
                return y + self._per_channel(f"{layer.name}.bias", y) if layer.bias else y
            case spec.Dense():
                y = x @ self._weights[layer.weight_name].T.astype(x.dtype)
                return y + self._weights[f"{layer.name}.bias"].astype(x.dtype) if layer.bias else y
            case spec.BatchNorm():
                return self._batch_norm(layer, x)
            case spec.LayerNorm():
                return self._layer_norm(layer, x)
            case spec.GroupNorm():
                return self._group_norm(layer, x)
            case spec.Dropout():
                return self._dropout(layer, x)
            case spec.MaxPool():
                return lax.reduce_window(x, -jnp.inf, lax.max, *_window_arguments(layer))
            case spec.AveragePool():
                window = _window_arguments(layer)
                pixels = jnp.ones((1, 1, *x.shape[2:]), x.dtype)
                counts = layer.size**2 if layer.count_padding else lax.reduce_window(pixels, 0.0, lax.add, *window)
                return lax.reduce_window(x, 0.0, lax.add, *window) / counts
            case spec.GlobalAveragePool():
                return x.mean((2, 3))
            case spec.ReLU():
                return jax.nn.relu(x)
            case spec.ReLU6():
                return jax.nn.relu6(x)
            case spec.GELU():
                return jax.nn.gelu(x, approximate=layer.approximate == "tanh")
            case spec.SiLU():
                return jax.nn.silu(x)
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
            case spec.Attention():
                return self._attention(layer, x)
            case spec.Positions():
                return x + self._weights[f"{layer.name}.weight"][: x.shape[1]].astype(x.dtype)
            case spec.Patches():
                weight = self._weights[f"{layer.name}.weight"].astype(x.dtype)
                y = lax.conv_general_dilated(x, weight, (layer.size,) * 2, "VALID")
                y = y.reshape(*y.shape[:2], -1).swapaxes(1, 2)
                return y + self._weights[f"{layer.name}.bias"].astype(x.dtype) if layer.bias else y
            case spec.ClassToken():
                token = self._weights[f"{layer.name}.token"].astype(x.dtype)
                return jnp.concatenate([jnp.broadcast_to(token, (len(x), 1, len(token))), x], axis=1)
            case spec.FirstPosition():
                return x[:, 0]
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

    def _layer_norm(self, layer: spec.LayerNorm, x: Any) -> Any:
        """Normalize each position in the weights' dtype, as Flax does, and return the dtype of `x`."""
        weight = self._weights[f"{layer.name}.weight"]
        y = _normalize(x.astype(weight.dtype), layer.epsilon) * weight
        return (y + self._weights[f"{layer.name}.bias"] if layer.bias else y).astype(x.dtype)

    def _group_norm(self, layer: spec.GroupNorm, x: Any) -> Any:
        """Normalize groups of channels in the weights' dtype, and return the dtype of `x`."""
        weight, bias = (self._weights[f"{layer.name}.{name}"][:, None, None] for name in ("weight", "bias"))
        groups = x.astype(weight.dtype).reshape(len(x), layer.groups, -1)
        return (_normalize(groups, layer.epsilon).reshape(x.shape) * weight + bias).astype(x.dtype)

    def _attention(self, layer: spec.Attention, x: Any) -> Any:
        """Multi-head self-attention with a product each for query, key and value, as in Flax."""

        def project(projection: str, x: Any) -> Any:
            y = x @ self._weights[f"{layer.name}.{projection}_weight"].T.astype(x.dtype)
            return y + self._weights[f"{layer.name}.{projection}_bias"].astype(x.dtype) if layer.bias else y

        heads = (*x.shape[:2], layer.heads, -1)
        q, k, v = (project(projection, x).reshape(heads) for projection in ("query", "key", "value"))
        attend = attend_in_float64 if x.dtype == jnp.float64 else jax.nn.dot_product_attention
        return project("output", attend(q, k, v, is_causal=layer.causal).reshape(x.shape))

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


def attend_in_float64(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    """Compute `jax.nn.dot_product_attention`, which always has its softmax in float32, in float64.

    See `_dot_product_attention_core` in jax/_src/nn/functions.py, jax 0.10.2. Timed steps use float32.
    """
    scores = jnp.einsum("bqhs,bkhs->bhqk", q, k) / q.shape[-1] ** 0.5
    if is_causal:
        scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhs->bqhs", jax.nn.softmax(scores), v)


def _normalize(x: Any, epsilon: float) -> Any:
    """Compute (x - mean) / sqrt(variance + epsilon) over the last axis."""
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt(x.var(-1, keepdims=True) + epsilon)


def _window_arguments(pool: spec.MaxPool | spec.AveragePool) -> tuple[Sequence[Any], ...]:
    """Return window sizes, strides and padding for `lax.reduce_window`."""
    return (1, 1, pool.size, pool.size), (1, 1, pool.stride, pool.stride), ((0, 0), (0, 0), *pool.pads.axes)


def lstm(layer: spec.LSTM, weights: Mapping[str, Any], x: Any) -> Any:
    """Compute the layer's output for `x`, (batch, time, inputs), in the dtype of `x`."""
    forwards = _run_direction(layer, weights, x, "")
    if not layer.bidirectional:
        return forwards if layer.sequence else forwards[:, -1]
    backwards = _run_direction(layer, weights, x[:, ::-1], REVERSE)
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
        i, f, g, o = jnp.split(rows + h @ recurrent, len(GATES), axis=-1)
        c = s(f) * c + s(i) * jnp.tanh(g)
        h = s(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), layer.units), x.dtype)
    _, outputs = lax.scan(cell_step, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)
