"""The layers as functions of `jax.numpy` and `jax.lax`. It imports JAX, so it is imported late.

Images are channels first and kernels (out, in, height, width), which is what `lax.conv_general_dilated` takes
where nothing else is said: the canonical layout. XLA chooses its own inside of a compiled step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import jax
import jax.numpy as jnp
from jax import lax

from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    ReLU,
    Residual,
)
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime
from polybench.engines.jax.recurrent import lstm

Tensors = Mapping[str, Any]
"""JAX arrays by their canonical names, `layer_name.part`."""


class Inference:
    """A pass through a network as at inference: no dropout, batch norm with its running statistics.

    Args:
        weights: in the type that they are trained in; convolutions and dense layers compute in the input's.
        running: batch norm's statistics.
        compute_dtype: what an embedding puts out; None for the type of its weights.
    """

    def __init__(self, weights: Tensors, running: Tensors, compute_dtype: Any = None) -> None:
        self._weights, self._running = weights, running
        self._compute_dtype = compute_dtype

    def through(self, layers: Sequence[Layer], x: Any) -> Any:
        """What comes out of the layers, one after the other."""
        for layer in layers:
            x = self.layer(layer, x)
        return x

    def layer(self, layer: Layer, x: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - a line or two for each kind
        """What comes out of one layer for `x`, images, features, or sequences of features or tokens."""
        match layer:
            case Conv():
                weight = self._weights[f"{layer.name}.weight"].astype(x.dtype)
                y = lax.conv_general_dilated(x, weight, (layer.stride,) * 2, [(layer.pad,) * 2] * 2)
                return y + self._of_channels(f"{layer.name}.bias", y) if layer.bias else y
            case Dense():
                weight, bias = (self._weights[f"{layer.name}.{part}"] for part in ("weight", "bias"))
                return x @ weight.T.astype(x.dtype) + bias.astype(x.dtype)
            case BatchNorm():
                return self._batch_norm(layer, x)
            case Dropout():
                return self._dropout(layer, x)
            case MaxPool():
                return lax.reduce_window(x, -jnp.inf, lax.max, *_windows(layer))
            case AveragePool():
                return lax.reduce_window(x, 0.0, lax.add, *_windows(layer)) / layer.size**2
            case GlobalAveragePool():
                return x.mean((2, 3))
            case ReLU():
                return jax.nn.relu(x)
            case Flatten():
                return x.reshape(len(x), -1)
            case Residual():
                return self.through(layer.body, x) + self.through(layer.shortcut, x)
            case Embedding():
                weight = self._weights[f"{layer.name}.weight"]
                return weight.astype(self._compute_dtype or weight.dtype)[x]
            case LSTM():
                parts = {part: self._weights[f"{layer.name}.{part}"] for part in layer.weight_shapes()}
                return lstm(layer, parts, x)
            case MeanOverTime():
                return x.mean(1)
            case _:
                assert_never(layer)

    def _of_channels(self, name: str, x: Any) -> Any:
        """A weight with an entry for each channel or feature, in the shape that adds to `x`, in its type."""
        return self._weights[name].astype(x.dtype).reshape(-1, *(1,) * (x.ndim - 2))

    def _batch_norm(self, layer: BatchNorm, x: Any) -> Any:
        """In the weights' own type, as Flax and PyTorch's autocast do it; the result in that of `x`."""
        wide = x.astype(self._weights[f"{layer.name}.weight"].dtype)
        statistics = self._statistics(layer, wide)
        mean, variance = (value.reshape(-1, *(1,) * (x.ndim - 2)) for value in statistics)
        weight, bias = (self._of_channels(f"{layer.name}.{part}", wide) for part in ("weight", "bias"))
        return (weight * (wide - mean) * lax.rsqrt(variance + layer.epsilon) + bias).astype(x.dtype)

    def _statistics(self, layer: BatchNorm, x: Any) -> tuple[Any, Any]:  # noqa: ARG002 - it is for training
        return self._running[f"{layer.name}.running_mean"], self._running[f"{layer.name}.running_variance"]

    def _dropout(self, layer: Dropout, x: Any) -> Any:  # noqa: ARG002
        return x


class Training(Inference):
    """A pass as in a training step, after which `running` and `key` are those of the next step.

    Args:
        masks: what dropout multiplies with, by layer (`engines.support.dropout_masks`); where there is none,
            it draws from `key`, a key of `jax.random`.
    """

    def __init__(
        self, weights: Tensors, running: Tensors, key: Any, masks: Tensors, compute_dtype: Any = None
    ) -> None:
        super().__init__(weights, running, compute_dtype)
        self.running, self.key = dict(running), key
        self._masks = masks

    def _statistics(self, layer: BatchNorm, x: Any) -> tuple[Any, Any]:
        axes = (0, *range(2, x.ndim))
        mean, variance = x.mean(axes), x.var(axes)
        pixels = x.size // x.shape[1]
        found = {"running_mean": mean, "running_variance": variance * (pixels / (pixels - 1))}
        for part, value in found.items():
            name = f"{layer.name}.{part}"
            self.running[name] = (1 - layer.momentum) * self._running[name] + layer.momentum * value
        return mean, variance

    def _dropout(self, layer: Dropout, x: Any) -> Any:
        if layer.name in self._masks:
            return x * self._masks[layer.name].astype(x.dtype)
        self.key, own = jax.random.split(self.key)
        kept = jax.random.bernoulli(own, 1 - layer.rate, x.shape)
        return jnp.where(kept, x / (1 - layer.rate), 0)


def _windows(pool: MaxPool | AveragePool) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Sizes, strides and padding, as `lax.reduce_window` takes them."""
    return (1, 1, pool.size, pool.size), (1, 1, pool.stride, pool.stride), "VALID"
