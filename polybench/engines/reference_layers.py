"""Every layer written out in NumPy: what it computes, and how a gradient passes back through it.

Each function takes a batch x and returns (y, backward). `backward(dy)` takes the gradient of the loss with
respect to y and returns the gradient with respect to x and those of the layer's own weights, by name.
Images are (batch, channels, height, width), in float64. Convolution and pooling are in `reference_windows`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Backward = Callable[[Array], tuple[Array, dict[str, Array]]]
Output = tuple[Array, Backward]


def relu(x: Array) -> Output:
    """max(x, 0); the gradient at 0 is 0."""
    return np.maximum(x, 0), lambda dy: (dy * (x > 0), {})


def flatten(x: Array) -> Output:
    """One row for each image, in C order."""
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), {})


def dropout(x: Array, mask: Array) -> Output:
    """x times a mask that is 0 or 1 / (1 - rate)."""
    return x * mask, lambda dy: (dy * mask, {})


def dense(x: Array, weight: Array, bias: Array) -> Output:
    """y = x W' + b."""
    return x @ weight.T + bias, lambda dy: (dy @ weight, {"weight": dy.T @ x, "bias": dy.sum(axis=0)})


def batch_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Output:
    """y = weight z + bias with z = (x - mean) / sqrt(variance + epsilon), over all axes but the second.

    Mean and variance depend on every x, hence the two means in the gradient.
    """
    axes = _all_but_channels(x)
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    z = (x - x.mean(axis=axes, keepdims=True)) / deviation
    shape = deviation.shape

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dz = dy * weight.reshape(shape)
        dx = dz - dz.mean(axis=axes, keepdims=True) - z * (dz * z).mean(axis=axes, keepdims=True)
        return dx / deviation, {"weight": (dy * z).sum(axis=axes), "bias": dy.sum(axis=axes)}

    return weight.reshape(shape) * z + bias.reshape(shape), backward


def batch_statistics(x: Array, *, unbiased: bool) -> tuple[Array, Array]:
    """Mean and variance of each channel over the batch; the variance divided by n - 1 or by n."""
    axes = _all_but_channels(x)
    return x.mean(axis=axes), x.var(axis=axes, ddof=1 if unbiased else 0)


def cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
    """The mean of -log softmax(logits)[label], and its gradient with respect to the logits."""
    images = np.arange(len(labels))
    # Taking the largest logit off changes nothing, and keeps exp from overflowing.
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    dlogits = np.exp(log_softmax)
    dlogits[images, labels] -= 1
    return float(-log_softmax[images, labels].mean()), dlogits / len(labels)


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))
