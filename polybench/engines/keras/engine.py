"""Keras: runs the program of its emitter, a channels-last model with `compile` and `train_on_batch`, on any backend."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import keras
import numpy as np
from keras.src.backend.common import dtypes

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import EngineInfo, Job, NumericalConventions
from polybench.engines.keras.backend import Backend
from polybench.engines.keras.emitter import emit
from polybench.engines.shared import keras_state
from polybench.engines.shared.batches import as_input
from polybench.engines.shared.keras_layout import batch_to_keras
from polybench.engines.shared.program import import_program
from polybench.engines.shared.python_engine import PythonEngine
from polybench.errors import EngineUnavailable
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class KerasEngine(PythonEngine):
    """Keras's own training step: eager on PyTorch, a `tf.function` on TensorFlow, compiled with XLA on JAX.

    `train_on_batch` is the step of `model.fit` without its iterator and callbacks. It returns the loss as a
    number, so it waits for the step to finish. `predict_on_batch`, the forward pass, returns the logits in NumPy.
    """

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self, backend: str) -> None:
        self._name, self._backend = backend, load_backend(backend)

    def probe(self) -> EngineInfo:
        versions = {"keras": str(keras.__version__)} | self._backend.versions()
        return EngineInfo(versions, {"backend": self._name} | self._backend.build_info(), ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:
        if job.device != "cpu":
            raise EngineUnavailable("polybench supports Keras on the CPU only", "use --devices cpu")
        self._job = job
        self._backend.configure_process(job)
        set_float64_support(self._name == "tensorflow" or job.dtype == "float64")
        keras_state.restore_defaults(job.dtype)
        self.is_forward_pass = job.workload.is_forward_pass
        self.program = emit(job, backend=self._name)
        self._program = import_program(self.program, self.folder)
        self.set_initial_weights(weights)
        self._state = self._program.setup(self._initial)
        self._model = self._state.model
        self._train_step = self._program.forward_pass if self.is_forward_pass else self._program.train_step
        loss_function = getattr(self._program, "loss_function", None)
        self._gradients = self._backend.gradients(self._model, loss_function)
        self._conventions = keras_state.conventions(job)
        self.reset()

    def conventions(self) -> NumericalConventions:
        return self._conventions

    def load(self, images: Array, labels: Array) -> None:
        super().load(images, labels)
        self._backend.synchronize([tensor for step in range(len(images)) for tensor in self._batches[step]])

    def reset(self) -> None:
        super().reset()
        self._synchronize()

    def training_state(self) -> Weights:
        return {**keras_state.training_state(self._state), **self._backend.generator_state()}

    def restore_training_state(self, state: Weights) -> None:
        keras_state.restore(state, self._state)
        self._backend.restore_generator(state)
        self._synchronize()

    def _batch(self, step: int) -> tuple[Any, ...]:
        """Return a step's batch, with the masks of dropout if the program takes them."""
        batch = self._batches[step % len(self._batches)]
        return (*batch, keras_state.masks(self._job, step)) if hasattr(self._program, "set_masks") else batch

    def inactive_variant(self) -> str:
        if keras.backend.backend() != self._name:
            return f"Keras runs on {keras.backend.backend()}: expected {self._name}: unset KERAS_BACKEND"
        return self._backend.explain_eager()

    def step_logits(self) -> Array:
        return np.asarray(self._loss).astype(self._job.dtype)

    def logits(self, images: Array) -> Array:
        return np.asarray(self._model.predict_on_batch(as_input(batch_to_keras(images), self._job.dtype)))

    def snapshot(self, step: int) -> Snapshot:
        images, labels, *masks = self._batch(step)
        if masks:
            self._program.set_masks(self._state, *masks)
        names = self._job.model.tensor_shapes()
        return keras_state.snapshot(self._program, self._state, (images, labels), self._gradients, names)

    def count_allocations(self, first: int, n: int) -> Allocations:
        return self._backend.count_allocations(partial(self.run_steps, first, n), n)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        return self._backend.allocation_sites(lambda step: self.run_steps(step, 1), range(first, first + n))

    def untraced_native_allocations(self) -> str:
        return self._backend.untraced_native_allocations()

    def _synchronize(self, result: object = None) -> None:
        self._backend.synchronize([result, *(variable.value for variable in self._model.trainable_variables)])


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
