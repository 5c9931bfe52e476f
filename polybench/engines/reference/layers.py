"""Forward and backward passes of the layers in NumPy.

Each function takes a batch x and returns (y, backward). `backward(dy)` takes the gradient of the loss with
respect to y and returns the gradients with respect to x and, by name, to the layer's own weights. Images are
(batch, channels, height, width), in float64. Convolution and pooling are in `conv_pool`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Backward = Callable[[Array], tuple[Array, dict[str, Array]]]
Output = tuple[Array, Backward]


def relu(x: Array, at_zero: float = 0.0) -> Output:
    """Compute max(x, 0), with the derivative `at_zero` at 0."""
    return np.maximum(x, 0), lambda dy: (dy * np.heaviside(x, at_zero), {})


def flatten(x: Array) -> Output:
    """Flatten each image to a row, in C order."""
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), {})


def dropout(x: Array, mask: Array) -> Output:
    """Multiply x by a mask of 0 and 1 / (1 - rate)."""
    return x * mask, lambda dy: (dy * mask, {})


def dense(x: Array, weight: Array, bias: Array) -> Output:
    """Compute y = x W' + b."""
    return x @ weight.T + bias, lambda dy: (dy @ weight, {"weight": dy.T @ x, "bias": dy.sum(axis=0)})


def batch_norm(x: Array, mean: Array, variance: Array, weight: Array, bias: Array, epsilon: float) -> Output:
    """Normalize: y = weight z + bias with z = (x - mean) / sqrt(variance + epsilon), for each channel.

    `mean` and `variance` are the results of `batch_statistics`. They depend on every x, hence the two means
    in the gradient.
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


def batch_statistics(x: Array, partial_sums: int = 0) -> tuple[Array, Array]:
    """Compute mean and variance of each channel over the batch; the variance is divided by n.

    With `partial_sums`, the sums are float32, as in `NumericalConventions.batch_norm_sums`.
    """
    if not partial_sums:
        axes = _all_but_channels(x)
        return x.mean(axis=axes), x.var(axis=axes)
    pixels = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]).astype(np.float32, order="C")
    mean = _float32_mean(pixels, partial_sums)
    variance = _float32_mean((pixels - mean) ** 2, partial_sums)
    return mean.astype(np.float64), variance.astype(np.float64)


def _float32_mean(pixels: NDArray[np.float32], partial_sums: int) -> NDArray[np.float32]:
    """Compute the mean of each column of (pixels, channels), rounded after every addition."""
    total = np.zeros(pixels.shape[1], np.float32)
    for first in range(partial_sums):
        # NumPy adds rows sequentially here; along a contiguous axis it would use pairwise summation.
        total += np.add.reduce(pixels[first::partial_sums], axis=0)
    return total / np.float32(len(pixels))


def cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
    """Compute the mean of -log softmax(logits)[label], and its gradient with respect to the logits."""
    images = np.arange(len(labels))
    # Subtracting the largest logit does not change the result, and prevents exp from overflowing.
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    dlogits = np.exp(log_softmax)
    dlogits[images, labels] -= 1
    return float(-log_softmax[images, labels].mean()), dlogits / len(labels)


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))
