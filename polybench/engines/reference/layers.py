"""Every layer written out in NumPy: what it computes, and how a gradient passes back through it.

Each function takes a batch x and returns (y, backward). `backward(dy)` takes the gradient of the loss with
respect to y and returns the gradient with respect to x and those of the layer's own weights, by name.
Images are (batch, channels, height, width), in float64. Convolution and pooling are in `windows`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Backward = Callable[[Array], tuple[Array, dict[str, Array]]]
Output = tuple[Array, Backward]


def relu(x: Array, at_zero: float = 0.0) -> Output:
    """max(x, 0), with this derivative at 0."""
    return np.maximum(x, 0), lambda dy: (dy * np.heaviside(x, at_zero), {})


def flatten(x: Array) -> Output:
    """One row for each image, in C order."""
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), {})


def dropout(x: Array, mask: Array) -> Output:
    """x times a mask that is 0 or 1 / (1 - rate)."""
    return x * mask, lambda dy: (dy * mask, {})


def dense(x: Array, weight: Array, bias: Array) -> Output:
    """y = x W' + b."""
    return x @ weight.T + bias, lambda dy: (dy @ weight, {"weight": dy.T @ x, "bias": dy.sum(axis=0)})


def batch_norm(x: Array, mean: Array, variance: Array, weight: Array, bias: Array, epsilon: float) -> Output:
    """y = weight z + bias with z = (x - mean) / sqrt(variance + epsilon), over all axes but the second.

    `mean` and `variance` are those of `batch_statistics`: they depend on every x, hence the two means in the
    gradient.
    """
    axes = _all_but_channels(x)
    shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
    deviation = np.sqrt(variance + epsilon).reshape(shape)
    z = (x - mean.reshape(shape)) / deviation

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dz = dy * weight.reshape(shape)
        dx = dz - dz.mean(axis=axes, keepdims=True) - z * (dz * z).mean(axis=axes, keepdims=True)
        return dx / deviation, {"weight": (dy * z).sum(axis=axes), "bias": dy.sum(axis=axes)}

    return weight.reshape(shape) * z + bias.reshape(shape), backward


def batch_statistics(x: Array, running_sums: int = 0) -> tuple[Array, Array]:
    """Mean and variance of each channel over the batch, the variance divided by n.

    With `running_sums` they are float32, as in `Conventions.batch_norm_sums`.
    """
    if not running_sums:
        axes = _all_but_channels(x)
        return x.mean(axis=axes), x.var(axis=axes)
    pixels = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]).astype(np.float32, order="C")
    mean = _float32_mean(pixels, running_sums)
    variance = _float32_mean((pixels - mean) ** 2, running_sums)
    return mean.astype(np.float64), variance.astype(np.float64)


def _float32_mean(pixels: NDArray[np.float32], running_sums: int) -> NDArray[np.float32]:
    """The mean of each column of (pixels, channels), rounded after every addition."""
    total = np.zeros(pixels.shape[1], np.float32)
    for first in range(running_sums):
        # NumPy, too, adds rows one after the other; along a contiguous axis it would add them pairwise.
        total += np.add.reduce(pixels[first::running_sums], axis=0)
    return total / np.float32(len(pixels))


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
