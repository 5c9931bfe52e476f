"""The layers of sequences in NumPy, written out as those of `layers` are: (y, backward) of a batch.

Sequences are (batch, time, features), in float64; tokens (batch, time), integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.core.sequence_layers import GATES, REVERSE
from polybench.engines.reference.layers import Array, Backward, Output


def embedding(tokens: NDArray[np.integer], weight: Array) -> Output:
    """y = weight[tokens]; a row that several tokens ask for gets the sum of their gradients."""

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dweight = np.zeros_like(weight)
        np.add.at(dweight, tokens, dy)
        return np.zeros(tokens.shape), {"weight": dweight}

    return weight[tokens], backward


def mean_over_time(x: Array) -> Output:
    """The mean of each feature over a sequence."""
    time = x.shape[1]
    return x.mean(axis=1), lambda dy: (np.repeat(dy[:, None] / time, time, axis=1), {})


class Activation(NamedTuple):
    """A function of x, and its derivative as a function of x and y."""

    of: Callable[[Array], Array]
    derivative: Callable[[Array, Array], Array]


SIGMOID = Activation(lambda x: 0.5 * (1 + np.tanh(0.5 * x)), lambda _, y: y * (1 - y))
HARD_SIGMOID = Activation(
    lambda x: np.clip(0.2 * x + 0.5, 0, 1), lambda x, _: np.where(np.abs(x) < 2.5, 0.2, 0.0)
)
RECURRENT = {"sigmoid": SIGMOID, "hard_sigmoid": HARD_SIGMOID}
"""By the names of `core.sequence_layers.LSTM`."""


def lstm(x: Array, tensors: Mapping[str, Array], activation: Activation, *, sequence: bool) -> Output:
    """An LSTM, and the one that reads from the end where `tensors` has its part; by `weight_shapes`' names.

    y is (batch, time, units of both) with `sequence`, else (batch, units of both): each one's last output.
    """
    forwards, forwards_back = _through(x, tensors, "", activation)
    if f"{REVERSE}weight" not in tensors:
        y, last = (forwards, lambda dy: dy) if sequence else (forwards[:, -1], lambda dy: _at(x, dy, -1))
        return y, lambda dy: forwards_back(last(dy))
    turned, turned_back = _through(x[:, ::-1], tensors, REVERSE, activation)
    backwards = turned[:, ::-1]
    y = np.concatenate([forwards, backwards] if sequence else [forwards[:, -1], backwards[:, 0]], axis=-1)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        of_forwards, of_backwards = np.split(dy, 2, axis=-1)
        if not sequence:
            of_forwards, of_backwards = _at(x, of_forwards, -1), _at(x, of_backwards, 0)
        dx, gradients = forwards_back(of_forwards)
        dturned, others = turned_back(of_backwards[:, ::-1])
        return dx + dturned[:, ::-1], gradients | others

    return y, backward


def _at(x: Array, dy: Array, time: int) -> Array:
    """The gradient of all outputs where only that of one time has one."""
    whole = np.zeros((*x.shape[:2], dy.shape[-1]))
    whole[:, time] = dy
    return whole


class _Moment(NamedTuple):
    """What the forward pass keeps of one time: of each gate, what is in front of s or tanh, and behind."""

    before: list[Array]
    gates: list[Array]
    c: Array
    """What the time began with."""
    tanh_c: Array
    """Of what it ended with."""


def _through(x: Array, tensors: Mapping[str, Array], prefix: str, s: Activation) -> tuple[Array, Backward]:
    """One direction: h of each time, (batch, time, units)."""
    weight, recurrent = tensors[f"{prefix}weight"], tensors[f"{prefix}recurrent"]
    biases = [part for part in (f"{prefix}bias", f"{prefix}recurrent_bias") if part in tensors]
    batch, time, _ = x.shape
    units = recurrent.shape[1]
    inputs = x @ weight.T + sum(tensors[part] for part in biases)
    h, c = np.zeros((2, batch, units))
    outputs, moments = np.empty((batch, time, units)), []
    for t in range(time):
        before = np.split(inputs[:, t] + h @ recurrent.T, len(GATES), axis=1)
        i, f, o = (s.of(before[gate]) for gate in (0, 1, 3))
        g = np.tanh(before[2])
        kept, c = c, f * c + i * g
        tanh_c = np.tanh(c)
        outputs[:, t] = h = o * tanh_c
        moments.append(_Moment(before, [i, f, g, o], kept, tanh_c))

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        drows = np.empty((batch, time, len(GATES) * units))
        dh, dc = np.zeros((2, batch, units))
        for t in reversed(range(time)):
            drows[:, t], dc = _moment_back(moments[t], dy[:, t] + dh, dc, s)
            dh = drows[:, t] @ recurrent
        # h of the time before, which is 0 at the beginning.
        earlier = np.concatenate([np.zeros((batch, 1, units)), outputs[:, :-1]], axis=1)
        gradients = {
            f"{prefix}weight": np.einsum("btr,bti->ri", drows, x),
            f"{prefix}recurrent": np.einsum("btr,btu->ru", drows, earlier),
        }
        return drows @ weight, gradients | {part: drows.sum(axis=(0, 1)) for part in biases}

    return outputs, backward


def _moment_back(moment: _Moment, dh: Array, dc: Array, s: Activation) -> tuple[Array, Array]:
    """The gradients of all gates' rows, (batch, 4 units), and of the c that the time began with."""
    (i, f, g, o), before = moment.gates, moment.before
    dc = dc + dh * o * (1 - moment.tanh_c**2)
    rows = [
        dc * g * s.derivative(before[0], i),
        dc * moment.c * s.derivative(before[1], f),
        dc * i * (1 - g**2),
        dh * moment.tanh_c * s.derivative(before[3], o),
    ]
    return np.concatenate(rows, axis=1), dc * f
