"""TensorFlow: runs the program of its emitter, a channels-last Keras model trained by a `tf.function` step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from polybench.engines.base import Array, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.job import EngineInfo, Job, NumericalConventions
from polybench.engines.shared import keras_state
from polybench.engines.shared.batches import as_input
from polybench.engines.shared.frameworks import explain_eager
from polybench.engines.shared.keras_layout import batch_to_keras
from polybench.engines.shared.program import import_program
from polybench.engines.shared.python_engine import PythonEngine
from polybench.engines.shared.tensorflow import (
    build_info,
    check_native_allocations,
    count_allocations,
    find_allocation_sites,
    make_loss_and_gradients,
    set_threads,
)
from polybench.engines.shared.timed_operations import make_timed_operations
from polybench.engines.tf.emitter import emit
from polybench.engines.tf.operations import layer_operations, step_operations
from polybench.engines.tf.pipeline import Pipeline
from polybench.engines.tf.replicas import Replicas, set_visible_devices, split_cpu_devices
from polybench.engines.tf.validation import validate
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TensorFlowEngine(PythonEngine):
    """Training with a `tf.function` step, compiled by `xla`, eager in `eager`; `keras_fit` uses `model.fit`.

    `model.fit` can only be timed as a whole, including its overhead for each call, which users pay. It
    reports the mean loss of a timing block. If the learning rate changes in a block, `model.fit` is called
    once per rate, and the loss is that of the last call.
    """

    timing_resolution: Literal["step", "block"] = "step"
    _program: Any

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None
        self._replicas: Replicas | None = None

    def probe(self) -> EngineInfo:
        gpus = tuple(f"cuda:{index}" for index in range(len(tf.config.list_physical_devices("GPU"))))
        return EngineInfo({"tensorflow": tf.__version__, "keras": keras.__version__}, build_info(), ("cpu", *gpus))

    def build(self, job: Job, weights: Weights) -> None:
        self._job = job
        validate(job)
        self._uses_fit = "keras_fit" in job.variants
        self._on_gpu = job.device != "cpu"
        # Neither a GPU's steps nor those of model.fit can be timed one by one.
        self.timing_resolution = "block" if self._on_gpu or self._uses_fit else "step"
        self.has_call_overhead = self._uses_fit
        self._device = "/GPU:0" if self._on_gpu else "/CPU:0"
        set_threads(job.workload.threads)
        set_visible_devices(job.device, job.workload.replicas)
        is_distributed = job.workload.replicas > 1
        if is_distributed and not self._on_gpu:
            split_cpu_devices(job.workload.replicas)
        self._replicas = Replicas(job) if is_distributed else None
        # TensorFlow's setting may be that of an earlier program of this process; the program changes what it needs.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        keras_state.restore_defaults(job.dtype)
        self.is_forward_pass = job.workload.is_forward_pass
        self.program = emit(job)
        self._program = import_program(self.program, self.folder)
        if self._replicas is not None:
            self._program.STRATEGY = self._replicas.strategy
        self.set_initial_weights(weights)
        self._state = self._program.setup(self._initial)
        self._model = self._state.model
        step = "forward_pass" if self.is_forward_pass else "train_steps" if self._uses_fit else "train_step"
        self._train_step = getattr(self._program, step)
        self._logits = tf.function(lambda images: self._model(images, training=False))
        self._gradients = self._make_gradients()
        self._conventions = keras_state.conventions(job)
        self.reset()

    def _make_gradients(self) -> Any:
        """Make the function of a training step without the update."""
        if self.is_forward_pass:
            return None
        if self._uses_fit:
            return tf.function(make_loss_and_gradients(self._model, self._program.loss_function))
        compute = partial(self._program.loss_and_gradients, self._model)
        if self._replicas is not None:
            return self._replicas.gradients(compute)
        # jit_compile=None is TensorFlow's default, which its own flags control.
        xla, eager = ("xla" in self._job.variants), ("eager" in self._job.variants)
        return compute if eager else tf.function(compute, jit_compile=xla or None)

    def conventions(self) -> NumericalConventions:
        return self._conventions

    def load(self, images: Array, labels: Array) -> None:
        self._pipeline = None
        super().load(images, labels)

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        self._pipeline = Pipeline(source, self._job.dtype)
        self._batches = self._pipeline.batches(self._device)

    def training_state(self) -> Weights:
        return keras_state.training_state(self._state)

    def restore_training_state(self, state: Weights) -> None:
        keras_state.restore(state, self._state)

    def inactive_variant(self) -> str:
        is_traced = self._uses_fit or "eager" in self._job.variants or self._compiled.experimental_get_tracing_count()
        if is_traced and not tf.config.functions_run_eagerly():
            return ""
        return explain_eager("TensorFlow ran every tf.function eagerly")

    def run_steps_without_allreduce(self, first: int, n: int) -> float | None:
        if self._replicas is None:
            return None
        step = self._state.compiled
        self._state.compiled = self._replicas.without_allreduce(step, self._state.optimizer)
        try:
            return self.run_steps(first, n)
        finally:
            self._state.compiled = step

    @property
    def _compiled(self) -> Any:
        """The program's `tf.function`."""
        return self._state.compiled

    def _prepare_training(self, first: int, n: int) -> Callable[[], Any]:
        if not self._uses_fit:
            return super()._prepare_training(first, n)
        segments = self._job.workload.optimizer.constant_rate_segments(first, n)
        return partial(self._run_fit, [(self._dataset(steps), steps, rate) for steps, rate in segments])

    def _batch(self, step: int) -> tuple[Any, ...]:
        """Return a step's batch, with the masks of dropout if the program takes them."""
        batch = self._batches[step % len(self._batches)]
        return (*batch, keras_state.masks(self._job, step)) if self._has_masks else batch

    @property
    def _has_masks(self) -> bool:
        return hasattr(self._program, "set_masks")

    def _dataset(self, steps: range) -> Any:
        """Return the batches of these steps as a `tf.data.Dataset`."""
        if self._pipeline is not None:
            return self._pipeline.dataset(steps.start % len(self._batches), len(steps))
        batches = [self._batches[step % len(self._batches)] for step in steps]
        images, labels = (tf.stack(tensors) for tensors in zip(*batches, strict=True))
        return tf.data.Dataset.from_tensor_slices((images, labels))

    def _run_fit(self, segments: Iterable[tuple[Any, range, float]]) -> Any:
        for dataset, steps, rate in segments:
            if hasattr(self._state, "rate"):
                self._program.set_learning_rate(self._state, rate)
            loss = self._train_step(self._state, dataset, *self._callbacks(steps))
        return loss

    def _callbacks(self, steps: range) -> list[Any]:
        """Return the callbacks that set each step's dropout masks before its batch, if the program takes masks."""
        if not self._has_masks:
            return []

        masks = (keras_state.masks(self._job, step) for step in steps)
        set_masks = partial(self._program.set_masks, self._state)
        return [[keras.callbacks.LambdaCallback(on_train_batch_begin=lambda *_, **__: set_masks(next(masks)))]]

    def step_logits(self) -> Array:
        return np.asarray(tf.cast(self._loss, self._job.dtype))

    def logits(self, images: Array) -> Array:
        with tf.device(self._device):
            return np.asarray(self._logits(tf.constant(as_input(batch_to_keras(images), self._job.dtype))))

    def snapshot(self, step: int) -> Snapshot:
        images, labels, *masks = self._batch(step)
        if masks:
            self._program.set_masks(self._state, *masks)
        names = self._job.model.tensor_shapes()
        return keras_state.snapshot(self._program, self._state, (images, labels), self._gradients, names)

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        pixels = images.numpy().transpose(0, 3, 1, 2).astype(np.float32)
        return np.ascontiguousarray(pixels), labels.numpy()

    def data_wait_seconds(self) -> float | None:
        return None if self._uses_fit else super().data_wait_seconds()  # model.fit does not report how long it waits

    def count_allocations(self, first: int, n: int) -> Allocations:
        return count_allocations(partial(self._time, self._prepare_training(first, n)), n, self._on_gpu)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        return find_allocation_sites(lambda step: self.run_steps(step, 1), range(first, first + n), self._on_gpu)

    def untraced_native_allocations(self) -> str:
        check_native_allocations()
        return ""

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        with tf.device(self._device):
            tensors = (tf.constant(as_input(batch_to_keras(array), self._job.dtype)) for array in (x, dy))
            calls = layer_operations(
                timed_layer,
                weights,
                *tensors,
                folder=self.folder,
                variants=self._job.variants,
                is_forward_pass=self.is_forward_pass,
            )
        return make_timed_operations(calls, self._synchronize)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        images, labels = self._batches[0]
        logits = self._model(images, training=True)
        eager = "eager" in self._job.variants
        calls = step_operations(logits, labels, self._state.optimizer, self._program.loss_function, eager=eager)
        return make_timed_operations(calls, self._synchronize)

    def device_peak_bytes(self) -> int | None:
        # The only visible GPU has index 0.
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self._on_gpu else None

    def device_bytes_in_use(self) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"]) if self._on_gpu else None

    def _synchronize(self, result: object = None) -> None:  # noqa: ARG002
        if self._on_gpu:  # on the CPU, steps are synchronous
            tf.test.experimental.sync_devices()
