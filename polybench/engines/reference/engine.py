"""Reference engine: readable training in NumPy, always in float64."""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np

from polybench.engines.base import Array, Engine, LayerTensors, Snapshot, Weights
from polybench.engines.job import EngineInfo, Job, NumericalConventions
from polybench.engines.reference.network import LayerObserver, Pass, logits, loss_and_gradients
from polybench.engines.shared.batches import as_dtype, dropout_masks
from polybench.networks.optimizers import State, apply_update

_OPTIMIZER = "optimizer/"
"""Prefix of the names of optimizer state."""


class ReferenceEngine(Engine):
    """Forward pass, backward pass and update in NumPy, with the job's numerical conventions.

    Dropout always uses the shared masks.
    """

    timing_resolution = "step"

    def probe(self) -> EngineInfo:
        return EngineInfo({"numpy": np.__version__}, {}, ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:
        self._job, self.is_forward_pass = job, job.workload.is_forward_pass
        self.set_initial_weights(weights)
        self.reset()

    def conventions(self) -> NumericalConventions:
        return self._job.conventions

    def load(self, images: Array, labels: Array) -> None:
        self._images, self._labels = images, labels
        self._cached: dict[int, Pass] = {}

    def reset(self) -> None:
        self._weights = as_dtype(self._initial, "float64")
        self._cached = {}
        self._state: dict[str, State] = {}

    def set_initial_weights(self, weights: Weights) -> None:
        self._initial = as_dtype(weights, "float64")

    def training_state(self) -> Weights:
        optimizer = {
            f"{_OPTIMIZER}{name}/{key}": np.asarray(value)
            for name, state in self._state.items()
            for key, value in state.items()
        }
        return as_dtype(self._weights, "float64") | optimizer

    def restore_training_state(self, state: Weights) -> None:
        self.reset()
        self._weights = {name: state[name] for name in self._weights}
        for name, value in state.items():
            if name.startswith(_OPTIMIZER):
                tensor, _, key = name.removeprefix(_OPTIMIZER).rpartition("/")
                self._state[tensor] = {**self._state.get(tensor, {}), key: value}

    def run_steps(self, first: int, n: int) -> float:
        start = perf_counter()
        for step in range(first, first + n):
            if self.is_forward_pass:
                self._logits = self.logits(self._images[step % len(self._images)])
                continue
            self._loss, gradients, statistics = self._pass(step)
            optimizer = self._job.workload.optimizer
            rate = optimizer.learning_rate_at(step)
            clip = optimizer.clip_factor(math.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values())))
            for name, gradient in gradients.items():
                self._weights[name], self._state[name] = self._update(
                    self._weights[name], clip * gradient, self._state.get(name, {}), rate
                )
            self._weights |= statistics
            self._cached = {}
        return perf_counter() - start

    def loss(self) -> float:
        return self._loss

    def step_logits(self) -> Array:
        return self._logits

    def statistics_after(self, step: int) -> Weights:
        return self._pass(step).state

    def logits(self, images: Array) -> Array:
        return logits(self._job.model, self._weights, images)

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, _ = self._pass(step)
        return Snapshot(loss, gradients, as_dtype(self._weights, "float64"))

    def layer_tensors(self, step: int) -> list[LayerTensors]:
        tensors: list[LayerTensors] = []
        self._compute(step, tensors.append)
        return tensors[::-1]

    def _update(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        return apply_update(self._job.workload.optimizer, rate, w, gradient, state)

    def _pass(self, step: int) -> Pass:
        """Compute batch `step` at the current weights, cached for the step after a snapshot."""
        if step not in self._cached:
            self._cached = {step: self._compute(step)}
        return self._cached[step]

    def _compute(self, step: int, *observe: LayerObserver) -> Pass:
        job, images = self._job, self._images[step % len(self._images)]
        labels = self._labels[step % len(self._labels)]
        masks = dropout_masks(job.model, len(images), job.seed, step)
        return loss_and_gradients(job.model, self._weights, images, labels, job.conventions, masks, *observe)
