"""Every layer written out in NumPy: what it computes, and how a gradient passes back through it.

Each function takes a batch x and returns (y, backward). `backward(dy)` takes the gradient of the loss with
respect to y and returns the gradient with respect to x and those of the layer's own weights, by name.
Images are (batch, channels, height, width), in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]
Backward = Callable[[Array], tuple[Array, dict[str, Array]]]
Output = tuple[Array, Backward]


def conv(x: Array, weight: Array, bias: Array) -> Output:
    """Cross-correlation: y[n,o,i,j] = bias[o] + sum over c,p,q of x[n,c,i+p,j+q] weight[o,c,p,q].

    Every output pixel's input window becomes one row of a matrix ("im2col"); then all of it is one product.
    """
    outputs, channels, kernel, _ = weight.shape
    windows = sliding_window_view(x, (kernel, kernel), axis=(2, 3))  # n, c, i, j, p, q
    images, _, height, width = windows.shape[:4]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(images * height * width, channels * kernel * kernel)
    matrix = weight.reshape(outputs, -1)
    y = (rows @ matrix.T + bias).reshape(images, height, width, outputs).transpose(0, 3, 1, 2)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        drows_of_y = dy.transpose(0, 2, 3, 1).reshape(-1, outputs)
        gradients = {
            "weight": (drows_of_y.T @ rows).reshape(weight.shape),
            "bias": drows_of_y.sum(axis=0),
        }
        drows = (drows_of_y @ matrix).reshape(images, height, width, channels, kernel, kernel)
        dwindows = drows.transpose(0, 3, 1, 2, 4, 5)
        dx = np.zeros_like(x)
        # A pixel was read by several windows, once at each place (p, q) of the kernel: add up.
        for p, q in itertools.product(range(kernel), repeat=2):
            dx[:, :, p : p + height, q : q + width] += dwindows[..., p, q]
        return dx, gradients

    return y, backward


def max_pool(x: Array, size: int, within: float) -> Output:
    """Maximum of each `size` x `size` window; its gradient goes to one value of the window.

    That is the first one, width fastest, which is equal to the maximum m up to the relative distance
    `within`: |v - m| <= within max(|v|, |m|), Julia's isapprox. With 0 it is the first maximum.
    """
    images, channels, height, width = x.shape[0], x.shape[1], x.shape[2] // size, x.shape[3] // size
    used = (slice(None), slice(None), slice(height * size), slice(width * size))
    split = (images, channels, height, size, width, size)
    windows = x[used].reshape(split).transpose(0, 1, 2, 4, 3, 5)
    windows = windows.reshape(images, channels, height, width, size * size)
    y = windows.max(axis=-1)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        maximum = y[..., None]
        equal = np.abs(windows - maximum) <= within * np.maximum(np.abs(windows), np.abs(maximum))
        winner = equal.argmax(axis=-1)  # of truth values: the first that is true
        dwindows = np.zeros_like(windows)
        np.put_along_axis(dwindows, winner[..., None], dy[..., None], axis=-1)
        dwindows = dwindows.reshape(images, channels, height, width, size, size)
        dx = np.zeros_like(x)
        dx[used] = dwindows.transpose(0, 1, 2, 4, 3, 5).reshape(x[used].shape)
        return dx, {}

    return y, backward


def relu(x: Array) -> Output:
    """max(x, 0); the gradient at 0 is 0."""
    return np.maximum(x, 0), lambda dy: (dy * (x > 0), {})


def flatten(x: Array) -> Output:
    """One row for each image, in C order."""
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), {})


def dense(x: Array, weight: Array, bias: Array) -> Output:
    """y = x W' + b."""
    return x @ weight.T + bias, lambda dy: (dy @ weight, {"weight": dy.T @ x, "bias": dy.sum(axis=0)})


def cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
    """The mean of -log softmax(logits)[label], and its gradient with respect to the logits."""
    images = np.arange(len(labels))
    # Taking the largest logit off changes nothing, and keeps exp from overflowing.
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    dlogits = np.exp(log_softmax)
    dlogits[images, labels] -= 1
    return float(-log_softmax[images, labels].mean()), dlogits / len(labels)
