"""Keras as its users write it: a model, channels last, `compile` and `train_on_batch`, on any backend."""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.errors import Unavailable
from polybench.core.job import Conventions, Job, Probe
from polybench.engines.base import Array, Engine, Snapshot, Weights
from polybench.engines.keras.backend import PLACES, find_backend
from polybench.engines.keras.environment import BACKEND
from polybench.engines.keras.float64 import keep_float64
from polybench.engines.support.arrays import as_input
from polybench.engines.support.frameworks import import_framework
from polybench.engines.support.keras.layout import batch_to_keras
from polybench.engines.support.rates import at_rates


class KerasEngine(Engine):
    """The step is Keras's own: eager on PyTorch, a `tf.function` on TensorFlow, compiled with XLA on JAX.

    `train_on_batch` does it, and answers its loss as a number, so it waits for that; it is the step of
    `model.fit`, without the iterator and the callbacks that this has around it.
    """

    sample_kind: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[tuple[Any, Any]] = []

    def load_framework(self) -> None:
        self._name = os.environ[BACKEND]
        module, product, extra, _ = PLACES[self._name]
        import_framework(module, product, f"keras,{extra}")
        import_framework("keras", "Keras", f"keras,{extra}")
        self._backend = find_backend(self._name)

    def probe(self) -> Probe:
        import keras

        versions = {"keras": str(keras.__version__)} | self._backend.versions()
        return Probe(versions, {"backend": self._name} | self._backend.build_facts(), ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:
        if job.device != "cpu":
            raise Unavailable("polybench trains Keras on the CPU only so far", "use --devices cpu")
        import keras

        from polybench.engines.support.keras.canonical_model import CanonicalModel
        from polybench.engines.support.keras.layers import conventions
        from polybench.engines.support.keras.optimizers import CanonicalOptimizer

        self._job = job
        self._backend.prepare(job)
        keep_float64(self._name == "tensorflow" or job.dtype == "float64")
        self._network = CanonicalModel(job, weights)
        self._model = self._network.model
        self._optimizer = CanonicalOptimizer(
            job.workload.optimizer, self._model.trainable_variables, self._backend.formulas()
        )
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._model.compile(self._optimizer.keras, loss_function)
        self._gradients = self._backend.gradients(self._model, loss_function)
        self._conventions = conventions(job)
        self.reset()

    def conventions(self) -> Conventions:
        return self._conventions

    def load(self, images: Array, labels: Array) -> None:
        from keras import ops

        self._batches = [
            (
                ops.convert_to_tensor(as_input(batch_to_keras(x), self._job.dtype)),
                ops.convert_to_tensor(y.astype(np.int32)),
            )
            for x, y in zip(images, labels, strict=True)
        ]
        self._backend.wait([tensor for batch in self._batches for tensor in batch])

    def reset(self) -> None:
        self._network.reset()
        self._optimizer.reset()
        self._wait()

    def start_from(self, weights: Weights) -> None:
        self._network.start_from(weights)

    def training_state(self) -> Weights:
        return self._network.training_state(self._optimizer)

    def go_on_from(self, state: Weights) -> None:
        self._network.go_on_from(state, self._optimizer)
        self._wait()

    def run_steps(self, first: int, n: int) -> float:
        batches, train_step = self._batches, self._model.train_on_batch
        steps = at_rates(self._job.workload.optimizer, first, n, self._optimizer.set_rate)
        start = perf_counter()
        for step in self._network.with_masks(steps):
            images, labels = batches[step % len(batches)]
            loss = train_step(images, labels)
        self._wait()
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def loss(self) -> float:
        return float(self._loss)

    def correct(self, images: Array, labels: Array) -> int:
        logits = self._model.predict_on_batch(as_input(batch_to_keras(images), self._job.dtype))
        return int((logits.argmax(axis=1) == labels).sum())

    def snapshot(self, step: int) -> Snapshot:
        batch = self._batches[step % len(self._batches)]
        return self._network.snapshot(step, batch, self._gradients)

    def count_allocations(self, first: int, n: int) -> Allocations:
        return self._backend.count_allocations(partial(self.run_steps, first, n), n)

    def allocation_places(self, first: int, n: int) -> Places:
        return self._backend.allocation_places(lambda step: self.run_steps(step, 1), range(first, first + n))

    def unseen_natively(self) -> str:
        return self._backend.unseen_natively()

    def close(self) -> None:
        self._batches = []

    def _wait(self) -> None:
        self._backend.wait([variable.value for variable in self._model.trainable_variables])
