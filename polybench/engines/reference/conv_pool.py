"""Reference convolution and pooling.

As in `layers`, each function takes a batch x, (batch, channels, height, width), and returns (y, backward).
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from polybench.engines.reference.layers import Array, Output


def conv(x: Array, weight: Array, bias: Array | None = None, stride: int = 1, pad: int = 0) -> Output:
    """Cross-correlation: y[n,o,i,j] = bias[o] + sum over c,p,q of x[n,c,s i+p-pad,s j+q-pad] weight[o,c,p,q].

    The input window of every output pixel becomes a row of a matrix (im2col), followed by a single product.
    """
    outputs, channels, kernel, _ = weight.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = _windows(padded, kernel, stride)
    images, _, height, width = windows.shape[:4]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(images * height * width, channels * kernel * kernel)
    matrix = weight.reshape(outputs, -1)
    y = rows @ matrix.T if bias is None else rows @ matrix.T + bias

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dy_rows = dy.transpose(0, 2, 3, 1).reshape(-1, outputs)
        gradients = {"weight": (dy_rows.T @ rows).reshape(weight.shape)}
        if bias is not None:
            gradients["bias"] = dy_rows.sum(axis=0)
        drows = (dy_rows @ matrix).reshape(images, height, width, channels, kernel, kernel)
        dpadded = _add_windows(padded.shape, drows.transpose(0, 3, 1, 2, 4, 5), stride)
        return dpadded[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]], gradients

    return y.reshape(images, height, width, outputs).transpose(0, 3, 1, 2), backward


def max_pool(x: Array, size: int, stride: int, relative_tolerance: float) -> Output:
    """Maximum of each `size` x `size` window; its gradient goes to one value of the window.

    That is the first value v, width fastest, with |v - m| <= relative_tolerance max(|v|, |m|) for the maximum
    m, which is Julia's isapprox. With 0, it is the first maximum.
    """
    windows = _windows(x, size, stride)
    values = windows.reshape(*windows.shape[:4], size * size)
    y = values.max(axis=-1)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        maximum = y[..., None]
        equal = np.abs(values - maximum) <= relative_tolerance * np.maximum(np.abs(values), np.abs(maximum))
        winner = equal.argmax(axis=-1)  # index of the first True
        dvalues = np.zeros_like(values)
        np.put_along_axis(dvalues, winner[..., None], dy[..., None], axis=-1)
        return _add_windows(x.shape, dvalues.reshape(windows.shape), stride), {}

    return y, backward


def average_pool(x: Array, size: int, stride: int) -> Output:
    """Mean of each `size` x `size` window."""
    windows = _windows(x, size, stride)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dwindows = np.broadcast_to(dy[..., None, None] / size**2, windows.shape)
        return _add_windows(x.shape, dwindows, stride), {}

    return windows.mean(axis=(-2, -1)), backward


def global_average_pool(x: Array) -> Output:
    """Mean of each channel: (batch, channels)."""
    pixels = x.shape[2] * x.shape[3]
    return x.mean(axis=(2, 3)), lambda dy: (np.broadcast_to(dy[..., None, None] / pixels, x.shape), {})


def _windows(x: Array, size: int, stride: int) -> Array:
    """Return a view (batch, channels, i, j, p, q) of pixels (stride i + p, stride j + q)."""
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def _add_windows(shape: tuple[int, ...], dwindows: Array, stride: int) -> Array:
    """Add the gradients of all windows to the gradient of the image.

    A pixel belongs to several windows, at a different position (p, q) in each.
    """
    dx = np.zeros(shape)
    height, width, size = dwindows.shape[2], dwindows.shape[3], dwindows.shape[4]
    for p, q in itertools.product(range(size), repeat=2):
        rows = slice(p, p + stride * (height - 1) + 1, stride)
        columns = slice(q, q + stride * (width - 1) + 1, stride)
        dx[:, :, rows, columns] += dwindows[..., p, q]
    return dx
