"""The oracle: training in NumPy, float64 always, written out to be read."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from polybench.engines.base import Array, Conventions, Engine, Job, Probe, Snapshot, Weights, as_dtype
from polybench.engines.dropout_masks import dropout_masks
from polybench.engines.reference_network import Pass, loss_and_gradients


def momentum_update(
    weights: Weights, velocity: Weights, gradients: Weights, learning_rate: float, momentum: float
) -> None:
    """v <- momentum v + g, then w <- w - learning_rate v, in place."""
    for name, gradient in gradients.items():
        velocity[name][...] = momentum * velocity[name] + gradient
        weights[name][...] -= learning_rate * velocity[name]


class ReferenceEngine(Engine):
    """Forward, backward and momentum in NumPy; follows the conventions of its job.

    Dropout masks are always the given ones.
    """

    sample_kind = "step"

    def load_framework(self) -> None:
        pass  # NumPy is here already

    def probe(self) -> Probe:
        return Probe({"numpy": np.__version__}, {}, ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:
        self._job = job
        self._initial = as_dtype(weights, "float64")
        self.reset()

    def conventions(self) -> Conventions:
        return self._job.conventions

    def load(self, images: Array, labels: Array) -> None:
        self._images, self._labels = images, labels

    def reset(self) -> None:
        self._weights = as_dtype(self._initial, "float64")
        trained = self._job.model.weight_shapes()
        self._velocity = {name: np.zeros(shape) for name, shape in trained.items()}

    def run_steps(self, first: int, n: int) -> float:
        optimizer = self._job.workload.optimizer
        start = perf_counter()
        for step in range(first, first + n):
            self._loss, gradients, state = self._pass(step)
            momentum_update(
                self._weights, self._velocity, gradients, optimizer.learning_rate, optimizer.momentum
            )
            self._weights |= state
        return perf_counter() - start

    def loss(self) -> float:
        return self._loss

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, _ = self._pass(step)
        return Snapshot(loss, gradients, as_dtype(self._weights, "float64"))

    def close(self) -> None:
        pass

    def _pass(self, step: int) -> Pass:
        """Batch `step` at the current weights."""
        job, images = self._job, self._images[step % len(self._images)]
        labels = self._labels[step % len(self._labels)]
        masks = dropout_masks(job.model, len(images), job.seed, step)
        return loss_and_gradients(job.model, self._weights, images, labels, job.conventions, masks)
