"""Forward and backward passes of the layers for sequences in NumPy; see `reference.layers`.

Sequences are (batch, time, features), in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.engines.reference.layers import Array, Backward, Output, conv, dense
from polybench.networks.sequence_layers import GATES, PROJECTIONS, REVERSE


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


def attention(x: Array, tensors: Mapping[str, Array], heads: int, *, causal: bool) -> Output:
    """Compute multi-head self-attention with `tensors` named as in `networks.sequence_layers.Attention`."""
    batch, time, features = x.shape
    projections = {
        name: lambda y, name=name: dense(y, tensors[f"{name}_weight"], tensors.get(f"{name}_bias"))
        for name in PROJECTIONS
    }
    projected = {name: projections[name](x) for name in ("query", "key", "value")}
    q, k, v = (y.reshape(batch, time, heads, -1).transpose(0, 2, 1, 3) for y, _ in projected.values())
    scale = score_scale(features // heads)
    scores = scale * q @ k.swapaxes(-1, -2)
    p = softmax(np.where(causal_mask(time), scores, -np.inf) if causal else scores)
    mixed = (p @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    output, output_backward = projections["output"](mixed)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dmixed, gradients = output_backward(dy)
        named = {f"output_{name}": value for name, value in gradients.items()}
        dheads = dmixed.reshape(batch, time, heads, -1).transpose(0, 2, 1, 3)
        dp = dheads @ v.swapaxes(-1, -2)
        dscores = scale * p * (dp - (dp * p).sum(axis=-1, keepdims=True))
        parts = dscores @ k, dscores.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dheads
        dx = np.zeros_like(x)
        for (name, (_, back)), part in zip(projected.items(), parts, strict=True):
            dpart, gradients = back(part.transpose(0, 2, 1, 3).reshape(x.shape))
            dx += dpart
            named |= {f"{name}_{tensor}": value for tensor, value in gradients.items()}
        return dx, {name: named[name] for name in tensors}

    return output, backward


def score_scale(size: int) -> float:
    """Return the factor of the scores of heads with `size` features."""
    return 1 / math.sqrt(size)


def causal_mask(time: int) -> NDArray[np.bool_]:
    """Return whether each position (row) uses each other one: itself and earlier ones."""
    return np.tri(time, dtype=bool)


def softmax(scores: Array) -> Array:
    """Compute the softmax over the last axis, the positions that each position uses."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def positions(x: Array, weight: Array) -> Output:
    """Add a row of the table to each position."""
    time = x.shape[1]

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dweight = np.zeros_like(weight)
        dweight[:time] = dy.sum(axis=0)
        return dy, {"weight": dweight}

    return x + weight[:time], backward


def patches(x: Array, weight: Array, bias: Array | None = None) -> Output:
    """Map each patch to features: a convolution whose stride is its kernel's size."""
    y, conv_backward = conv(x, weight, bias, stride=weight.shape[-1])
    sequence = y.reshape(*y.shape[:2], -1).swapaxes(1, 2)
    return sequence, lambda dy: conv_backward(dy.swapaxes(1, 2).reshape(y.shape))


def class_token(x: Array, token: Array) -> Output:
    """Put the token before the first position."""
    tokens = np.broadcast_to(token, (len(x), 1, len(token)))
    return np.concatenate([tokens, x], axis=1), lambda dy: (dy[:, 1:], {"token": dy[:, 0].sum(axis=0)})


def first_position(x: Array) -> Output:
    """Return the first position of each sequence."""

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx = np.zeros_like(x)
        dx[:, 0] = dy
        return dx, {}

    return x[:, 0], backward
