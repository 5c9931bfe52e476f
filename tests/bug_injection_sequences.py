"""Engines with one bug each in their LSTM, like `tests.bug_injection`: the parity check must fail all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from unittest.mock import patch

import numpy as np

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import Job
from polybench.engines.reference import layers
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.reference.layers import Activation, Output
from polybench.engines.reference.network import LayerObserver, Pass
from polybench.networks.layers import GATES, REVERSE

right = layers.lstm


class SwappedGates(ReferenceEngine):
    """Swaps the rows of output gate and cell, as in the order i, f, o, g."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, _swapped(job, weights))

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, weights = super().snapshot(step)
        return Snapshot(loss, _swapped(self._job, gradients), _swapped(self._job, weights))


def _swapped(job: Job, weights: Weights) -> dict[str, Array]:
    """Swap the last two gates in every tensor with rows for gates."""
    names = {
        f"{layer.name}.{part}"
        for layer, _ in job.model.activations()
        if type(layer).__name__ == "LSTM"
        for part in layer.weight_shapes()
    }

    def swap(value: Array) -> Array:
        *others, configuration, output = np.split(value, len(GATES))
        return np.concatenate([*others, output, configuration])

    return {name: swap(value) if name in names else value for name, value in weights.items()}


class OneBiasMissing(ReferenceEngine):
    """Never trains one of an LSTM's two biases."""

    def _pass(self, step: int) -> Pass:
        found = super()._pass(step)
        gradients = {
            name: np.zeros_like(value) if name.endswith(".recurrent_bias") else value
            for name, value in found.gradients.items()
        }
        return found._replace(gradients=gradients)


class _OtherLSTM(ReferenceEngine):
    wrong: ClassVar[object]

    def _compute(self, step: int, *watch: LayerObserver) -> Pass:
        with patch.object(layers, "lstm", self.wrong):
            return super()._compute(step, *watch)


def _both_read_forwards(x: Array, tensors: Mapping[str, Array], activation: Activation, *, sequence: bool) -> Output:
    second = {name.removeprefix(REVERSE): value for name, value in tensors.items() if REVERSE in name}
    first = {name: value for name, value in tensors.items() if REVERSE not in name}
    y, back = right(x, first, activation, sequence=sequence)
    if not second:
        return y, back
    other, other_back = right(x, second, activation, sequence=sequence)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        (dx, own), (dother, others) = (
            one(part) for one, part in zip((back, other_back), np.split(dy, 2, axis=-1), strict=True)
        )
        return dx + dother, own | {REVERSE + name: value for name, value in others.items()}

    return np.concatenate([y, other], axis=-1), backward


def _both_end_at_the_end(x: Array, tensors: Mapping[str, Array], activation: Activation, *, sequence: bool) -> Output:
    y, back = right(x, tensors, activation, sequence=True)
    if sequence:
        return y, back

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        whole = np.zeros_like(y)
        whole[:, -1] = dy
        return back(whole)

    return y[:, -1], backward


class ReversedDirection(_OtherLSTM):
    """Reads the second direction from the beginning."""

    wrong = staticmethod(_both_read_forwards)


class WrongFinalState(_OtherLSTM):
    """Takes the outputs of the last time step, at which the second direction has read one value only."""

    wrong = staticmethod(_both_end_at_the_end)
