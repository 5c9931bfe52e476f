"""Forward and backward passes of the layers in NumPy.

Each function takes a batch x and returns (y, backward). `backward(dy)` takes the gradient of the loss with
respect to y and returns the gradients with respect to x and, by name, to the layer's own weights. Images are
(batch, channels, height, width), in float64. Layers for sequences are in `sequence_layers`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from polybench.engines.job import NO_DEVIATIONS, NumericalConventions
from polybench.networks.padding import NO_PADDING, Sides

Array = NDArray[np.float64]
Backward = Callable[[Array], tuple[Array, dict[str, Array]]]
Output = tuple[Array, Backward]


def relu(x: Array, at_zero: float = 0.0) -> Output:
    """Compute max(x, 0), with the derivative `at_zero` at 0."""
    return np.maximum(x, 0), lambda dy: (dy * np.heaviside(x, at_zero), {})


def relu6(x: Array) -> Output:
    """Compute min(max(x, 0), 6), with the derivative 0 at 0 and 6."""
    return np.clip(x, 0, 6), lambda dy: (dy * ((x > 0) & (x < 6)), {})


def silu(x: Array) -> Output:
    """Compute x s(x) with s(x) = 1 / (1 + exp(-x))."""
    s = 0.5 * (1 + np.tanh(0.5 * x))
    return x * s, lambda dy: (dy * s * (1 + x * (1 - s)), {})


def gelu(x: Array) -> Output:
    """Compute x P(x) with the normal distribution P, whose derivative is the normal density."""
    from scipy.special import erf

    p = 0.5 * (1 + erf(x / math.sqrt(2)))
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return x * p, lambda dy: (dy * (p + x * density), {})


def gelu_tanh(x: Array) -> Output:
    """Compute the approximation 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    t = np.tanh(scale * (x + cubic * x**3))
    du = scale * (1 + 3 * cubic * x**2)
    return 0.5 * x * (1 + t), lambda dy: (dy * 0.5 * (1 + t + x * (1 - t**2) * du), {})


def flatten(x: Array) -> Output:
    """Flatten each image to a row, in C order."""
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), {})


def dropout(x: Array, mask: Array) -> Output:
    """Multiply x by a mask of 0 and 1 / (1 - rate)."""
    return x * mask, lambda dy: (dy * mask, {})


def dense(x: Array, weight: Array, bias: Array | None = None) -> Output:
    """Compute y = x W' + b over the last axis."""

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        rows = dy.reshape(-1, len(weight))
        gradients = {"weight": rows.T @ x.reshape(-1, x.shape[-1])}
        return dy @ weight, gradients if bias is None else gradients | {"bias": rows.sum(axis=0)}

    return x @ weight.T if bias is None else x @ weight.T + bias, backward


Rows = NDArray[np.int64] | None
"""The batch as row numbers of x, which may repeat, because equal images are computed once; None is every row once.
The gradient of a row is the sum over all of its images."""


def count_images(x: Array, rows: Rows) -> Array:
    """Count the images of the batch that each row of x stands for, in a shape that broadcasts with x."""
    counts = np.ones(len(x)) if rows is None else np.bincount(rows).astype(np.float64)
    return counts.reshape(-1, *[1] * (x.ndim - 1))


def values_per_channel(x: Array, rows: Rows) -> int:
    """Count the values of a channel in the whole batch."""
    return (len(x) if rows is None else len(rows)) * math.prod(x.shape[2:])


def batch_norm(
    x: Array, mean: Array, variance: Array, weight: Array, bias: Array, epsilon: float, rows: Rows = None
) -> Output:
    """Normalize: y = weight z + bias with z = (x - mean) / sqrt(variance + epsilon), for each channel.

    `mean` and `variance` are the results of `batch_statistics`. They depend on every x, hence the two means
    in the gradient.
    """
    axes = _all_but_channels(x)
    shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
    deviation = np.sqrt(variance + epsilon).reshape(shape)
    z = (x - mean.reshape(shape)) / deviation
    counts, n = count_images(x, rows), values_per_channel(x, rows)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dz = dy * weight.reshape(shape)
        means = dz.sum(axis=axes, keepdims=True) / n, (dz * z).sum(axis=axes, keepdims=True) / n
        dx = dz - counts * (means[0] + z * means[1])
        return dx / deviation, {"weight": (dy * z).sum(axis=axes), "bias": dy.sum(axis=axes)}

    return weight.reshape(shape) * z + bias.reshape(shape), backward


def layer_norm(x: Array, weight: Array, bias: Array | None, epsilon: float) -> Output:
    """Normalize each position over its features: y = weight z + bias."""
    z, z_backward = _normalize(x, epsilon)
    axes = tuple(range(x.ndim - 1))

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        gradients = {"weight": (dy * z).sum(axis=axes)} | ({} if bias is None else {"bias": dy.sum(axis=axes)})
        return z_backward(dy * weight), gradients

    return weight * z if bias is None else weight * z + bias, backward


def group_norm(x: Array, weight: Array, bias: Array, groups: int, epsilon: float) -> Output:
    """Normalize each image over all pixels of a group of channels: y = weight z + bias, for each channel."""
    grouped, z_backward = _normalize(x.reshape(len(x), groups, -1), epsilon)
    z, axes, scale = grouped.reshape(x.shape), _all_but_channels(x), weight[:, None, None]

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx = z_backward((dy * scale).reshape(grouped.shape)).reshape(x.shape)
        return dx, {"weight": (dy * z).sum(axis=axes), "bias": dy.sum(axis=axes)}

    return scale * z + bias[:, None, None], backward


def _normalize(x: Array, epsilon: float) -> tuple[Array, Callable[[Array], Array]]:
    """Compute z = (x - mean) / sqrt(variance + epsilon) over the last axis, and the gradient of x from that of z."""
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    z = (x - x.mean(axis=-1, keepdims=True)) / deviation

    def backward(dz: Array) -> Array:
        means = dz.mean(axis=-1, keepdims=True) + z * (dz * z).mean(axis=-1, keepdims=True)
        return np.asarray((dz - means) / deviation)

    return z, backward


def batch_statistics(x: Array, partial_sums: int = 0, rows: Rows = None) -> tuple[Array, Array]:
    """Compute mean and variance of each channel over the batch; the variance is divided by n.

    With `partial_sums`, the sums are float32, as in `NumericalConventions.batch_norm_sums`.
    """
    if not partial_sums:
        axes, counts, n = _all_but_channels(x), count_images(x, rows), values_per_channel(x, rows)
        mean = (counts * x).sum(axis=axes, keepdims=True) / n
        return mean.ravel(), (counts * (x - mean) ** 2).sum(axis=axes) / n
    x = x if rows is None else x[rows]
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


def cross_entropy(
    logits: Array, labels: NDArray[np.int64], rows: Rows = None, smoothing: float = 0.0
) -> tuple[float, Array]:
    """Compute the mean of -log softmax(logits)[label], and its gradient with respect to the logits.

    Logits are (batch, classes) or (batch, time, classes); the mean is over all labels. With `smoothing` s, it is 1 - s
    times that of the label, plus s times the mean over all classes.
    """
    # Subtracting the largest logit does not change the result, and prevents exp from overflowing.
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    classes = logits.shape[-1]
    target = (1 - smoothing) * (np.arange(classes) == labels[..., None]) + smoothing / classes
    counts = np.broadcast_to(count_images(logits, rows), (*labels.shape, 1))
    shares = counts / counts.sum()
    return float(-(shares * target * log_softmax).sum()), shares * (np.exp(log_softmax) - target)


def cross_entropy_of_softmax(
    logits: Array, labels: NDArray[np.int64], rows: Rows = None, smoothing: float = 0.0
) -> tuple[float, Array]:
    """Apply softmax twice, which is a common mistake: `cross_entropy` of softmax(logits)."""
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    loss, dp = cross_entropy(p, labels, rows, smoothing)
    return loss, p * (dp - (dp * p).sum(axis=-1, keepdims=True))


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def conv(
    x: Array, weight: Array, bias: Array | None = None, stride: int = 1, pads: Sides = NO_PADDING, groups: int = 1
) -> Output:
    """Cross-correlation: y[n,o,i,j] = bias[o] + sum over c,p,q of x[n,c,s i+p-top,s j+q-left] weight[o,c,p,q].

    In each group of inputs and outputs, the input window of every output pixel becomes a row of a matrix (im2col),
    followed by a product.
    """
    outputs, kernel = len(weight), weight.shape[-1]
    padded, unpad = _pad(x, pads)
    windows = _windows(padded, kernel, stride)
    images, channels, height, width = windows.shape[:4]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(images * height * width, groups, -1).swapaxes(0, 1)
    matrix = weight.reshape(groups, outputs // groups, -1)
    y = (rows @ matrix.swapaxes(1, 2)).swapaxes(0, 1).reshape(images, height, width, outputs).transpose(0, 3, 1, 2)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dy_rows = dy.transpose(0, 2, 3, 1).reshape(images * height * width, groups, -1).swapaxes(0, 1)
        gradients = {"weight": (dy_rows.swapaxes(1, 2) @ rows).reshape(weight.shape)}
        if bias is not None:
            gradients["bias"] = dy.sum(axis=(0, 2, 3))
        drows = (dy_rows @ matrix).swapaxes(0, 1).reshape(images, height, width, channels, kernel, kernel)
        return _add_windows(padded.shape, drows.transpose(0, 3, 1, 2, 4, 5), stride)[unpad], gradients

    return y if bias is None else y + bias[:, None, None], backward


def max_pool(
    x: Array, size: int, stride: int, conventions: NumericalConventions = NO_DEVIATIONS, pads: Sides = NO_PADDING
) -> Output:
    """Maximum of each `size` x `size` window; its gradient goes to the first maximum of the window, width fastest.

    With t = `conventions.max_pool_within`, a value v counts as the maximum m if |v - m| <= t max(|v|, |m|), which is
    Julia's isapprox. `conventions.max_pool_ties` are the other rules for several maxima.
    """
    padded, unpad = _pad(x, pads, np.finfo(x.dtype).min)  # -inf would be near every maximum
    windows = _windows(padded, size, stride)
    values = windows.reshape(*windows.shape[:4], size * size)
    y = values.max(axis=-1)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        maximum = y[..., None]
        within = conventions.max_pool_within * np.maximum(np.abs(values), np.abs(maximum))
        equal = np.abs(values - maximum) <= within
        match conventions.max_pool_ties:
            case "first":
                dvalues = np.zeros_like(values)
                np.put_along_axis(dvalues, equal.argmax(axis=-1)[..., None], dy[..., None], axis=-1)
            case "all":
                dvalues = equal * dy[..., None]
            case "shared":
                dvalues = equal * (dy / equal.sum(axis=-1))[..., None]
        return _add_windows(padded.shape, dvalues.reshape(windows.shape), stride)[unpad], {}

    return y, backward


def average_pool(x: Array, size: int, stride: int, pads: Sides = NO_PADDING, *, count_padding: bool = True) -> Output:
    """Mean of each `size` x `size` window; padding counts as pixels of value 0, or not at all."""
    padded, unpad = _pad(x, pads)
    windows = _windows(padded, size, stride)
    pixels, _ = _pad(np.ones((1, 1, *x.shape[2:])), pads, float(count_padding))
    counts = _windows(pixels, size, stride).sum(axis=(-2, -1))

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dwindows = np.broadcast_to((dy / counts)[..., None, None], windows.shape)
        return _add_windows(padded.shape, dwindows, stride)[unpad], {}

    return windows.sum(axis=(-2, -1)) / counts, backward


def global_average_pool(x: Array) -> Output:
    """Mean of each channel: (batch, channels)."""
    pixels = x.shape[2] * x.shape[3]
    return x.mean(axis=(2, 3)), lambda dy: (np.broadcast_to(dy[..., None, None] / pixels, x.shape), {})


def round_bits(x: Array, bits: int) -> Array:
    """Round to so many significant bits, halves to even."""
    mantissa, exponent = np.frexp(x)
    rounded: Array = np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)
    return rounded


def _pad(x: Array, pads: Sides, value: float = 0.0) -> tuple[Array, tuple[slice, ...]]:
    """Return padded images, and the index of the pixels of the image in them."""
    padded = np.pad(x, ((0, 0), (0, 0), *pads.axes), constant_values=value)
    rows, columns = slice(pads.top, pads.top + x.shape[2]), slice(pads.left, pads.left + x.shape[3])
    return padded, (slice(None), slice(None), rows, columns)


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
