"""The oracle: training in NumPy, float64 always, written out to be read."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import assert_never

import numpy as np

from polybench.core.layers import Conv, Dense, Flatten, Layer, MaxPool, Model, ReLU
from polybench.engines import reference_layers as layers
from polybench.engines.base import EXACT, Array, Conventions, Engine, Job, Probe, Snapshot, Weights, as_dtype
from polybench.engines.reference_optimizers import State, updated


def loss_and_gradients(
    model: Model, weights: Weights, images: Array, labels: Array, conventions: Conventions = EXACT
) -> tuple[float, dict[str, Array]]:
    """The mean cross-entropy of one batch, and its gradient for every weight, in float64.

    Args:
        model: whose layers are gone through forwards, then backwards.
        weights: canonical, float64.
        images: (batch, channels, height, width), any float type.
        labels: (batch), int64.
        conventions: which rule the max-pool gradient follows.
    """
    y = images.astype(np.float64)
    backwards = []
    for layer in model.layers:
        y, backward = _forward(layer, y, weights, conventions)
        backwards.append(backward)

    loss, dy = layers.cross_entropy(y, labels)
    gradients: dict[str, Array] = {}
    for layer, backward in zip(reversed(model.layers), reversed(backwards), strict=True):
        dy, own = backward(dy)
        if isinstance(layer, Conv | Dense):
            gradients |= {f"{layer.name}.{part}": gradient for part, gradient in own.items()}
    return loss, {name: gradients[name] for name in weights}


def _forward(layer: Layer, x: Array, weights: Weights, conventions: Conventions) -> layers.Output:
    match layer:
        case Conv(name=name):
            return layers.conv(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
        case Dense(name=name):
            return layers.dense(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
        case MaxPool(size=size):
            return layers.max_pool(x, size, conventions.max_pool_within)
        case ReLU():
            return layers.relu(x)
        case Flatten():
            return layers.flatten(x)
        case _:
            assert_never(layer)


class ReferenceEngine(Engine):
    """Forward, backward and update in NumPy; follows the conventions of its job."""

    sample_kind = "step"

    def load_framework(self) -> None:
        pass  # NumPy is here already

    def probe(self) -> Probe:
        return Probe({"numpy": np.__version__}, {}, ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:
        self._job = job
        self.start_from(weights)
        self.reset()

    def conventions(self) -> Conventions:
        return self._job.conventions

    def load(self, images: Array, labels: Array) -> None:
        self._images, self._labels = images, labels

    def reset(self) -> None:
        self._weights = as_dtype(self._initial, "float64")
        self._state: dict[str, State] = {}

    def start_from(self, weights: Weights) -> None:
        self._initial = as_dtype(weights, "float64")

    def run_steps(self, first: int, n: int) -> float:
        start = perf_counter()
        for step in range(first, first + n):
            self._loss, gradients = self._gradients(step)
            rate = self._job.workload.optimizer.rate_at(step)
            for name, gradient in gradients.items():
                self._weights[name], self._state[name] = self._updated(
                    self._weights[name], gradient, self._state.get(name, {}), rate
                )
        return perf_counter() - start

    def loss(self) -> float:
        return self._loss

    def correct(self, images: Array, labels: Array) -> int:
        y = images.astype(np.float64)
        for layer in self._job.model.layers:
            y, _ = _forward(layer, y, self._weights, EXACT)
        return int((y.argmax(axis=1) == labels).sum())

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients = self._gradients(step)
        return Snapshot(loss, gradients, as_dtype(self._weights, "float64"))

    def close(self) -> None:
        pass

    def _updated(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        return updated(self._job.workload.optimizer, rate, w, gradient, state)

    def _gradients(self, step: int) -> tuple[float, Mapping[str, Array]]:
        batch = step % len(self._images)
        return loss_and_gradients(
            self._job.model, self._weights, self._images[batch], self._labels[batch], self._job.conventions
        )
