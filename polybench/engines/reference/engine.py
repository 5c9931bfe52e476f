"""The oracle: training in NumPy, float64 always, written out to be read."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from polybench.core.job import Conventions, Job, Probe
from polybench.core.optimizer_formulas import State, updated
from polybench.engines.base import Array, Engine, LayerTensors, Snapshot, Weights
from polybench.engines.reference.inference import logits
from polybench.engines.reference.network import Pass, Watch, loss_and_gradients
from polybench.engines.support.arrays import as_dtype
from polybench.engines.support.dropout_masks import dropout_masks

_OPTIMIZER = "optimizer/"
"""Before the name of a tensor, of its optimizer's state."""


class ReferenceEngine(Engine):
    """Forward, backward and update in NumPy; follows the conventions of its job.

    Dropout masks are always the given ones.
    """

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
        self._known: dict[int, Pass] = {}

    def reset(self) -> None:
        self._weights = as_dtype(self._initial, "float64")
        self._known = {}
        self._state: dict[str, State] = {}

    def start_from(self, weights: Weights) -> None:
        self._initial = as_dtype(weights, "float64")

    def training_state(self) -> Weights:
        optimizer = {
            f"{_OPTIMIZER}{name}/{part}": np.asarray(value)
            for name, state in self._state.items()
            for part, value in state.items()
        }
        return as_dtype(self._weights, "float64") | optimizer

    def go_on_from(self, state: Weights) -> None:
        self.reset()
        self._weights = {name: state[name] for name in self._weights}
        for name, value in state.items():
            if name.startswith(_OPTIMIZER):
                tensor, _, part = name.removeprefix(_OPTIMIZER).rpartition("/")
                self._state[tensor] = {**self._state.get(tensor, {}), part: value}

    def run_steps(self, first: int, n: int) -> float:
        start = perf_counter()
        for step in range(first, first + n):
            self._loss, gradients, statistics = self._pass(step)
            rate = self._job.workload.optimizer.rate_at(step)
            for name, gradient in gradients.items():
                self._weights[name], self._state[name] = self._updated(
                    self._weights[name], gradient, self._state.get(name, {}), rate
                )
            self._weights |= statistics
            self._known = {}
        return perf_counter() - start

    def loss(self) -> float:
        return self._loss

    def correct(self, images: Array, labels: Array) -> int:
        found = logits(self._job.model, self._weights, images).argmax(axis=1)
        return int((found == labels).sum())

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, _ = self._pass(step)
        return Snapshot(loss, gradients, as_dtype(self._weights, "float64"))

    def layer_tensors(self, step: int) -> list[LayerTensors]:
        seen: list[LayerTensors] = []
        self._computed(step, seen.append)
        return seen[::-1]

    def close(self) -> None:
        pass

    def _updated(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        return updated(self._job.workload.optimizer, rate, w, gradient, state)

    def _pass(self, step: int) -> Pass:
        """Batch `step` at the current weights; a snapshot and the step after it need the same."""
        if step not in self._known:
            self._known = {step: self._computed(step)}
        return self._known[step]

    def _computed(self, step: int, *watch: Watch) -> Pass:
        job, images = self._job, self._images[step % len(self._images)]
        labels = self._labels[step % len(self._labels)]
        masks = dropout_masks(job.model, len(images), job.seed, step)
        return loss_and_gradients(job.model, self._weights, images, labels, job.conventions, masks, *watch)
