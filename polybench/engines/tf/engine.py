"""Idiomatic TensorFlow: a channels-last Keras model trained by a `tf.function` step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from polybench.engines.base import Array, Engine, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.job import EngineInfo, Job, NumericalConventions
from polybench.engines.shared.batches import Batch, BufferedBatches, as_input, scheduled_steps
from polybench.engines.shared.frameworks import explain_eager
from polybench.engines.shared.keras_layers import conventions, lstm_options, make_loss
from polybench.engines.shared.keras_layout import batch_to_keras
from polybench.engines.shared.keras_model import CanonicalModel
from polybench.engines.shared.tensorflow import (
    build_info,
    check_native_allocations,
    count_allocations,
    find_allocation_sites,
    set_threads,
)
from polybench.engines.shared.timed_operations import make_timed_operations
from polybench.engines.tf.operations import layer_operations, step_operations
from polybench.engines.tf.pipeline import Pipeline
from polybench.engines.tf.replicas import Replicas, set_visible_devices, split_cpu_devices, step_functions
from polybench.engines.tf.validation import validate
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TensorFlowEngine(Engine):
    """Training with a `tf.function` step, compiled by `xla`, eager in `eager`; `keras_fit` uses `model.fit`.

    `model.fit` can only be timed as a whole, including its overhead for each call, which users pay. It
    reports the mean loss of a timing block. If the learning rate changes in a block, `model.fit` is called
    once per rate, and the loss is that of the last call.
    """

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[Batch] | BufferedBatches = []
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
        self._replicas = replicas = Replicas(job) if is_distributed else None
        tf.config.experimental.enable_tensor_float_32_execution(job.workload.precision == "tf32")
        self._dtype = job.dtype
        xla, eager = ("xla" in job.variants), ("eager" in job.variants)
        with tf.device(self._device) if replicas is None else replicas.scope():
            assign_masks = () if replicas is None else (replicas.assign_shards,)
            self._network = CanonicalModel(job, weights, *assign_masks)
            self._model = self._network.model
            self._optimizer = self._network.optimizer()
        self._loss_function = loss_function = make_loss(job.model)
        if self._uses_fit:
            # Keras's default, "auto", is XLA on a GPU only. It is explicit here because "auto" depends on the
            # machine's GPUs, not on the device of the model.
            xla = xla or (self._on_gpu and not eager)
            self._model.compile(self._optimizer.keras, loss_function, jit_compile=xla, run_eagerly=eager)
        self._logits = tf.function(lambda images: self._model(images, training=False))
        # jit_compile=None is TensorFlow's default, which its own flags control.
        wrap = (lambda function: function) if eager else tf.function(jit_compile=xla or None)
        training = self._model, self._optimizer.keras, loss_function
        self.is_forward_pass = job.workload.is_forward_pass
        if self.is_forward_pass:
            self._step = wrap(lambda images, _labels: self._model(images, training=False))
        elif replicas is None:
            self._step, self._gradients = step_functions(*training, wrap)
        else:
            self._step, self._gradients, self._step_without_allreduce = replicas.step_functions(*training)
        self._conventions = conventions(job)
        self.reset()

    def conventions(self) -> NumericalConventions:
        return self._conventions

    def load(self, images: Array, labels: Array) -> None:
        self._pipeline = None
        to_device = tf.constant if self._replicas is None else self._replicas.split
        with tf.device(self._device) if self._replicas is None else contextlib.nullcontext():
            self._batches = [
                (to_device(as_input(batch_to_keras(x), self._dtype)), to_device(y))
                for x, y in zip(images, labels, strict=True)
            ]

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        self._pipeline = Pipeline(source, self._dtype)
        self._batches = self._pipeline.batches(self._device)

    def reset(self) -> None:
        self._network.reset()
        self._optimizer.reset()

    def set_initial_weights(self, weights: Weights) -> None:
        self._network.set_initial_weights(weights)

    def training_state(self) -> Weights:
        return self._network.training_state(self._optimizer)

    def restore_training_state(self, state: Weights) -> None:
        self._network.restore_training_state(state, self._optimizer)

    def run_steps(self, first: int, n: int) -> float:
        return self._time(self._prepare_training(first, n))

    def inactive_variant(self) -> str:
        is_traced = self._uses_fit or "eager" in self._job.variants or self._step.experimental_get_tracing_count()
        if is_traced and not tf.config.functions_run_eagerly():
            return ""
        return explain_eager("TensorFlow ran every tf.function eagerly")

    def run_steps_without_allreduce(self, first: int, n: int) -> float | None:
        if self._replicas is None:
            return None
        step, self._step = self._step, self._step_without_allreduce
        try:
            return self.run_steps(first, n)
        finally:
            self._step = step

    def _prepare_training(self, first: int, n: int) -> Callable[[], Any]:
        """Return a function that trains these steps and returns the last loss; untimed work is done here."""
        optimizer = self._job.workload.optimizer
        if self._uses_fit:
            segments = optimizer.constant_rate_segments(first, n)
            return partial(self._run_fit, [(self._dataset(steps), steps, rate) for steps, rate in segments])
        steps = scheduled_steps(optimizer, first, n, self._optimizer.set_learning_rate)
        return partial(self._run_loop, self._network.with_masks(steps))

    def _run_loop(self, steps: Iterable[int]) -> Any:
        batches, train_step = self._batches, self._step
        for step in steps:
            images, labels = batches[step % len(batches)]
            loss = train_step(images, labels)
        return loss

    def _dataset(self, steps: range) -> Any:
        """Return the batches of these steps as a `tf.data.Dataset`."""
        if self._pipeline is not None:
            return self._pipeline.dataset(steps.start % len(self._batches), len(steps))
        batches = [self._batches[step % len(self._batches)] for step in steps]
        images, labels = (tf.stack(tensors) for tensors in zip(*batches, strict=True))
        return tf.data.Dataset.from_tensor_slices((images, labels))

    def _run_fit(self, segments: Iterable[tuple[Any, range, float]]) -> Any:
        for dataset, steps, rate in segments:
            self._optimizer.set_learning_rate(rate)
            history = self._model.fit(dataset, epochs=1, shuffle=False, verbose=0, callbacks=self._callbacks(steps))
        return history.history["loss"][-1]

    def _callbacks(self, steps: range) -> list[Any]:
        """Return a callback that sets each step's dropout masks before its batch, if the job fixes them."""
        if self._job.dropout != "given":
            return []

        set_masks = iter(self._network.with_masks(steps))
        return [keras.callbacks.LambdaCallback(on_train_batch_begin=lambda *_, **__: next(set_masks))]

    def _time(self, training: Callable[[], Any]) -> float:
        self._synchronize()
        start = perf_counter()
        loss = training()
        self._synchronize()
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def loss(self) -> float:
        return float(self._loss)

    def step_logits(self) -> Array:
        return np.asarray(tf.cast(self._loss, self._dtype))

    def logits(self, images: Array) -> Array:
        with tf.device(self._device):
            return np.asarray(self._logits(tf.constant(as_input(batch_to_keras(images), self._dtype))))

    def snapshot(self, step: int) -> Snapshot:
        batch = self._batches[step % len(self._batches)]
        return self._network.snapshot(step, batch, self._gradients)

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        pixels = images.numpy().transpose(0, 3, 1, 2).astype(np.float32)
        return np.ascontiguousarray(pixels), labels.numpy()

    def drain_pipeline(self, first: int, n: int) -> float:
        self._synchronize()
        start = perf_counter()
        for step in range(first, first + n):
            self._batches[step % len(self._batches)]
        self._synchronize()
        return perf_counter() - start

    def data_wait_seconds(self) -> float | None:
        if self._uses_fit:  # model.fit does not report how long it waits
            return None
        return self._batches.wait_seconds if isinstance(self._batches, BufferedBatches) else None

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
            tensors = (tf.constant(as_input(batch_to_keras(array), self._dtype)) for array in (x, dy))
            eager, options = ("eager" in self._job.variants), lstm_options(self._job.variants)
            forward = self.is_forward_pass
            calls = layer_operations(
                timed_layer, weights, *tensors, eager=eager, lstm_options=options, is_forward_pass=forward
            )
        return make_timed_operations(calls, self._synchronize)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        images, labels = self._batches[0]
        logits = self._model(images, training=True)
        eager = "eager" in self._job.variants
        calls = step_operations(logits, labels, self._optimizer.keras, self._loss_function, eager=eager)
        return make_timed_operations(calls, self._synchronize)

    def device_peak_bytes(self) -> int | None:
        # The only visible GPU has index 0.
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self._on_gpu else None

    def _synchronize(self) -> None:
        if self._on_gpu:  # on the CPU, steps are synchronous
            tf.test.experimental.sync_devices()
