"""Forward and backward passes of the layers in NumPy.

Each function takes a batch x and returns (y, backward). `backward(dy)` takes the gradient of the loss with
respect to y and returns the gradients with respect to x and, by name, to the layer's own weights. Images are
(batch, channels, height, width), in float64. Convolution and pooling are in `conv_pool`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from polybench.networks.layers import GATES, REVERSE

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


def cross_entropy(logits: Array, labels: NDArray[np.int64], rows: Rows = None) -> tuple[float, Array]:
    """Compute the mean of -log softmax(logits)[label], and its gradient with respect to the logits."""
    images = np.arange(len(labels))
    # Subtracting the largest logit does not change the result, and prevents exp from overflowing.
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    dlogits = np.exp(log_softmax)
    dlogits[images, labels] -= 1
    counts = count_images(logits, rows)
    shares = counts / counts.sum()
    return float(-(shares[:, 0] * log_softmax[images, labels]).sum()), shares * dlogits


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


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


def embedding(tokens: NDArray[np.integer], weight: Array) -> Output:
    """Compute y = weight[tokens]; the gradient of a row is the sum over all of its tokens."""

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dweight = np.zeros_like(weight)
        np.add.at(dweight, tokens, dy)
        return np.zeros(tokens.shape), {"weight": dweight}

    return weight[tokens], backward


def mean_over_time(x: Array) -> Output:
    """Mean of each feature over a sequence."""
    time = x.shape[1]
    return x.mean(axis=1), lambda dy: (np.repeat(dy[:, None] / time, time, axis=1), {})


class Activation(NamedTuple):
    """Activation function of x, and its derivative as a function of x and y."""

    of: Callable[[Array], Array]
    derivative: Callable[[Array, Array], Array]


SIGMOID = Activation(lambda x: 0.5 * (1 + np.tanh(0.5 * x)), lambda _, y: y * (1 - y))
HARD_SIGMOID = Activation(lambda x: np.clip(0.2 * x + 0.5, 0, 1), lambda x, _: np.where(np.abs(x) < 2.5, 0.2, 0.0))
RECURRENT = {"sigmoid": SIGMOID, "hard_sigmoid": HARD_SIGMOID}
"""Recurrent activations by the names of `networks.layers.LSTM`."""


def lstm(x: Array, tensors: Mapping[str, Array], activation: Activation, *, sequence: bool) -> Output:
    """Compute an LSTM, bidirectional if `tensors` (named as in `weight_shapes`) has the second direction.

    y is (batch, time, units of both) with `sequence`, else the last outputs, (batch, units of both).
    """
    forwards, forwards_back = _run_direction(x, tensors, "", activation)
    if f"{REVERSE}weight" not in tensors:
        y, last = (forwards, lambda dy: dy) if sequence else (forwards[:, -1], lambda dy: _gradient_at(x, dy, -1))
        return y, lambda dy: forwards_back(last(dy))
    reverse, reverse_back = _run_direction(x[:, ::-1], tensors, REVERSE, activation)
    backwards = reverse[:, ::-1]
    y = np.concatenate([forwards, backwards] if sequence else [forwards[:, -1], backwards[:, 0]], axis=-1)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dforwards, dbackwards = np.split(dy, 2, axis=-1)
        if not sequence:
            dforwards, dbackwards = _gradient_at(x, dforwards, -1), _gradient_at(x, dbackwards, 0)
        dx, gradients = forwards_back(dforwards)
        dx_reverse, reverse_gradients = reverse_back(dbackwards[:, ::-1])
        return dx + dx_reverse[:, ::-1], gradients | reverse_gradients

    return y, backward


def _gradient_at(x: Array, dy: Array, time: int) -> Array:
    """Expand the gradient of one time step's output to all time steps, with zeros."""
    expanded = np.zeros((*x.shape[:2], dy.shape[-1]))
    expanded[:, time] = dy
    return expanded


class _CellState(NamedTuple):
    """Values of one time step that the backward pass needs."""

    pre_activations: list[Array]
    gates: list[Array]
    previous_c: Array
    tanh_c: Array


def _run_direction(x: Array, tensors: Mapping[str, Array], prefix: str, s: Activation) -> tuple[Array, Backward]:
    """Run one direction: h of each time step, (batch, time, units)."""
    weight, recurrent = tensors[f"{prefix}weight"], tensors[f"{prefix}recurrent"]
    biases = [name for name in (f"{prefix}bias", f"{prefix}recurrent_bias") if name in tensors]
    batch, time, _ = x.shape
    units = recurrent.shape[1]
    inputs = x @ weight.T + sum(tensors[name] for name in biases)
    h, c = np.zeros((2, batch, units))
    outputs, states = np.empty((batch, time, units)), []
    for t in range(time):
        z = np.split(inputs[:, t] + h @ recurrent.T, len(GATES), axis=1)
        i, f, o = (s.of(z[gate]) for gate in (0, 1, 3))
        g = np.tanh(z[2])
        previous_c, c = c, f * c + i * g
        tanh_c = np.tanh(c)
        outputs[:, t] = h = o * tanh_c
        states.append(_CellState(z, [i, f, g, o], previous_c, tanh_c))

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        drows = np.empty((batch, time, len(GATES) * units))
        dh, dc = np.zeros((2, batch, units))
        for t in reversed(range(time)):
            drows[:, t], dc = _cell_backward(states[t], dy[:, t] + dh, dc, s)
            dh = drows[:, t] @ recurrent
        # h of the previous time step, which is initially 0.
        previous_h = np.concatenate([np.zeros((batch, 1, units)), outputs[:, :-1]], axis=1)
        gradients = {
            f"{prefix}weight": np.einsum("btr,bti->ri", drows, x),
            f"{prefix}recurrent": np.einsum("btr,btu->ru", drows, previous_h),
        }
        return drows @ weight, gradients | {name: drows.sum(axis=(0, 1)) for name in biases}

    return outputs, backward


def _cell_backward(state: _CellState, dh: Array, dc: Array, s: Activation) -> tuple[Array, Array]:
    """Compute the gradients of all gates' pre-activations, (batch, 4 units), and of the previous c."""
    (i, f, g, o), z = state.gates, state.pre_activations
    dc = dc + dh * o * (1 - state.tanh_c**2)
    rows = [
        dc * g * s.derivative(z[0], i),
        dc * state.previous_c * s.derivative(z[1], f),
        dc * i * (1 - g**2),
        dh * state.tanh_c * s.derivative(z[3], o),
    ]
    return np.concatenate(rows, axis=1), dc * f
