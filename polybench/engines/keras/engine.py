"""Idiomatic Keras: a channels-last model, `compile` and `train_on_batch`, on any backend."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from keras.src.backend.common import dtypes

from polybench.engines.base import Array, Engine, Snapshot, Weights
from polybench.engines.job import EngineInfo, Job, NumericalConventions
from polybench.engines.keras.backend import Backend
from polybench.engines.shared.batches import as_input, scheduled_steps
from polybench.engines.shared.keras_layers import conventions, make_loss
from polybench.engines.shared.keras_layout import batch_to_keras
from polybench.engines.shared.keras_model import CanonicalModel
from polybench.errors import EngineUnavailable
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class KerasEngine(Engine):
    """Keras's own training step: eager on PyTorch, a `tf.function` on TensorFlow, compiled with XLA on JAX.

    `train_on_batch` is the step of `model.fit` without its iterator and callbacks. It returns the loss as a
    number, so it waits for the step to finish. `predict_on_batch`, the forward pass, returns the logits in NumPy.
    """

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self, backend: str) -> None:
        self._name, self._backend = backend, load_backend(backend)
        self._batches: list[tuple[Any, Any]] = []

    def probe(self) -> EngineInfo:
        versions = {"keras": str(keras.__version__)} | self._backend.versions()
        return EngineInfo(versions, {"backend": self._name} | self._backend.build_info(), ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:
        if job.device != "cpu":
            raise EngineUnavailable("polybench supports Keras on the CPU only", "use --devices cpu")
        self._job = job
        self._backend.configure_process(job)
        set_float64_support(self._name == "tensorflow" or job.dtype == "float64")
        self._network = CanonicalModel(job, weights)
        self._model = self._network.model
        self._optimizer = self._network.optimizer(self._backend.optimizer_classes)
        loss_function = make_loss(job.model)
        self._model.compile(self._optimizer.keras, loss_function)
        self.is_forward_pass = job.workload.is_forward_pass
        self._gradients = self._backend.gradients(self._model, loss_function)
        self._conventions = conventions(job)
        self.reset()

    def conventions(self) -> NumericalConventions:
        return self._conventions

    def load(self, images: Array, labels: Array) -> None:
        self._batches = [
            (
                ops.convert_to_tensor(as_input(batch_to_keras(x), self._job.dtype)),
                ops.convert_to_tensor(y.astype(np.int32)),
            )
            for x, y in zip(images, labels, strict=True)
        ]
        self._backend.synchronize([tensor for batch in self._batches for tensor in batch])

    def reset(self) -> None:
        self._network.reset()
        self._optimizer.reset()
        self._synchronize()

    def set_initial_weights(self, weights: Weights) -> None:
        self._network.set_initial_weights(weights)

    def training_state(self) -> Weights:
        return self._network.training_state(self._optimizer)

    def restore_training_state(self, state: Weights) -> None:
        self._network.restore_training_state(state, self._optimizer)
        self._synchronize()

    def run_steps(self, first: int, n: int) -> float:
        batches, train_step = self._batches, self._predict if self.is_forward_pass else self._model.train_on_batch
        steps = scheduled_steps(self._job.workload.optimizer, first, n, self._optimizer.set_learning_rate)
        start = perf_counter()
        for step in self._network.with_masks(steps):
            images, labels = batches[step % len(batches)]
            loss = train_step(images, labels)
        self._synchronize()
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def _predict(self, images: Any, _labels: Any) -> Array:
        logits: Array = self._model.predict_on_batch(images)  # in NumPy, as users get them
        return logits

    def inactive_variant(self) -> str:
        if keras.backend.backend() != self._name:
            return f"Keras runs on {keras.backend.backend()}: expected {self._name}: unset KERAS_BACKEND"
        return self._backend.explain_eager()

    def loss(self) -> float:
        return float(self._loss)

    def step_logits(self) -> Array:
        return np.asarray(self._loss).astype(self._job.dtype)

    def logits(self, images: Array) -> Array:
        return np.asarray(self._model.predict_on_batch(as_input(batch_to_keras(images), self._job.dtype)))

    def snapshot(self, step: int) -> Snapshot:
        batch = self._batches[step % len(self._batches)]
        return self._network.snapshot(step, batch, self._gradients)

    def count_allocations(self, first: int, n: int) -> Allocations:
        return self._backend.count_allocations(partial(self.run_steps, first, n), n)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        return self._backend.allocation_sites(lambda step: self.run_steps(step, 1), range(first, first + n))

    def untraced_native_allocations(self) -> str:
        return self._backend.untraced_native_allocations()

    def close(self) -> None:
        self._batches = []

    def _synchronize(self) -> None:
        self._backend.synchronize([variable.value for variable in self._model.trainable_variables])


def load_backend(name: str) -> Backend:
    """Import the adapter of Keras's backend, and with it only that framework."""
    match name:
        case "torch":
            from polybench.engines.keras.torch_backend import TorchBackend

            return TorchBackend()
        case "jax":
            from polybench.engines.keras.jax_backend import JaxBackend

            return JaxBackend()
        case _:
            from polybench.engines.keras.tensorflow_backend import TensorFlowBackend

            return TensorFlowBackend()


def set_float64_support(enabled: bool) -> None:
    """Select the dtype of operations on float64, such as batch norm: float64 if enabled, else float32.

    It changes the table that `keras.src.backend.common.dtypes.result_type` reads (Keras 3.15).
    """
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64" if enabled else "float32"
