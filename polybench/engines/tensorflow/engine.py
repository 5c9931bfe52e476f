"""TensorFlow as its users write it: a Keras model, channels last, trained in a `tf.function` step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np

from polybench.core.document.layers import Part
from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.job import Conventions, Job, Probe
from polybench.core.pieces import Piece
from polybench.engines.base import Array, Engine, Replayed, Snapshot, Stream, Weights
from polybench.engines.support.arrays import as_input
from polybench.engines.support.drawn_batches import Batch, DrawnBatches
from polybench.engines.support.frameworks import import_framework
from polybench.engines.support.keras.layout import batch_to_keras
from polybench.engines.support.rates import at_rates
from polybench.engines.support.replay import timed
from polybench.engines.support.tensorflow.allocations import (
    NATIVELY_UNSEEN,
    allocations,
    onednn_is_on,
    places,
)
from polybench.engines.support.tensorflow.build_facts import build_facts
from polybench.engines.support.tensorflow.threads import set_threads
from polybench.engines.tensorflow.device import show_only
from polybench.engines.tensorflow.pipeline import Pipeline
from polybench.engines.tensorflow.replicas import Replicas, cut_cpu
from polybench.engines.tensorflow.replicas import check as check_replicas
from polybench.engines.tensorflow.training_step import step_functions
from polybench.engines.tensorflow.variants import check as check_variants


class TensorFlowEngine(Engine):
    """A `tf.function` step by default; `xla` compiles it, `eager` does without; `keras_fit` is `model.fit`.

    `model.fit` can only be timed as a whole, its own cost for each call included, as its users pay it.
    The loss that it reports is the mean over the block; for a block of one step, that step's. A block in
    which the rate changes is several calls, and the loss the last one's.
    """

    sample_kind: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[Batch] | DrawnBatches = []
        self._pipeline: Pipeline | None = None
        self._replicas: Replicas | None = None

    def load_framework(self) -> None:
        import_framework("tensorflow", "TensorFlow", "tf")
        import_framework("keras", "Keras", "tf")

    def probe(self) -> Probe:
        import keras
        import tensorflow as tf

        gpus = tuple(f"cuda:{index}" for index in range(len(tf.config.list_physical_devices("GPU"))))
        return Probe(
            {"tensorflow": tf.__version__, "keras": keras.__version__}, build_facts(), ("cpu", *gpus)
        )

    def build(self, job: Job, weights: Weights) -> None:
        import keras
        import tensorflow as tf

        from polybench.engines.support.keras.canonical_model import CanonicalModel
        from polybench.engines.support.keras.layers import conventions
        from polybench.engines.support.keras.optimizers import CanonicalOptimizer

        self._job = job
        check_variants(job)
        check_replicas(job)
        self._fit = "keras_fit" in job.variants
        self._on_gpu = job.device != "cpu"
        # Neither a GPU's steps nor those of model.fit can be timed one by one.
        self.sample_kind = "block" if self._on_gpu or self._fit else "step"
        self.calls_cost = self._fit
        self._device = "/GPU:0" if self._on_gpu else "/CPU:0"
        set_threads(job.workload.threads)
        show_only(job.device, job.workload.replicas)
        several = job.workload.replicas > 1
        if several and not self._on_gpu:
            cut_cpu(job.workload.replicas)
        self._replicas = replicas = Replicas(job) if several else None
        tf.config.experimental.enable_tensor_float_32_execution(job.workload.precision == "tf32")
        self._dtype = job.dtype
        xla, eager = ("xla" in job.variants), ("eager" in job.variants)
        with tf.device(self._device) if replicas is None else replicas.scope():
            masks = () if replicas is None else (replicas.assign_parts,)
            self._network = CanonicalModel(job, weights, *masks)
            self._model = self._network.model
            self._optimizer = CanonicalOptimizer(job.workload.optimizer, self._model.trainable_variables)
        self._loss_function = loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if self._fit:
            # Keras's default, "auto", means XLA on a GPU and not on the CPU. It is spelled out here because
            # "auto" asks whether the machine has a GPU, not whether the model runs on it.
            xla = xla or (self._on_gpu and not eager)
            self._model.compile(self._optimizer.keras, loss_function, jit_compile=xla, run_eagerly=eager)
        self._logits = tf.function(lambda images: self._model(images, training=False))
        # None leaves it to TensorFlow's own switches.
        compiled = (lambda function: function) if eager else tf.function(jit_compile=xla or None)
        parts = self._model, self._optimizer.keras, loss_function
        if replicas is None:
            self._step, self._gradients = step_functions(*parts, compiled)
        else:
            self._step, self._gradients, self._step_apart = replicas.step_functions(*parts)
        self._conventions = conventions(job)
        self.reset()

    def conventions(self) -> Conventions:
        return self._conventions

    def load(self, images: Array, labels: Array) -> None:
        import tensorflow as tf

        self._pipeline = None
        placed = tf.constant if self._replicas is None else self._replicas.split
        with tf.device(self._device) if self._replicas is None else contextlib.nullcontext():
            self._batches = [
                (placed(as_input(batch_to_keras(x), self._dtype)), placed(y))
                for x, y in zip(images, labels, strict=True)
            ]

    def open_stream(self, stream: Stream) -> None:
        self.sample_kind = "block"
        self._pipeline = Pipeline(stream, self._dtype)
        self._batches = self._pipeline.draw(self._device)

    def reset(self) -> None:
        self._network.reset()
        self._optimizer.reset()

    def start_from(self, weights: Weights) -> None:
        self._network.start_from(weights)

    def training_state(self) -> Weights:
        return self._network.training_state(self._optimizer)

    def go_on_from(self, state: Weights) -> None:
        self._network.go_on_from(state, self._optimizer)

    def run_steps(self, first: int, n: int) -> float:
        return self._timed(self._training(first, n))

    def run_steps_apart(self, first: int, n: int) -> float | None:
        if self._replicas is None:
            return None
        together, self._step = self._step, self._step_apart
        try:
            return self.run_steps(first, n)
        finally:
            self._step = together

    def _training(self, first: int, n: int) -> Callable[[], Any]:
        """What trains these steps and answers the last loss; all that need not be timed is done."""
        optimizer = self._job.workload.optimizer
        if self._fit:
            stretches = optimizer.stretches(first, n)
            return partial(self._fit_on, [(self._dataset(steps), steps, rate) for steps, rate in stretches])
        steps = at_rates(optimizer, first, n, self._optimizer.set_rate)
        return partial(self._loop, self._network.with_masks(steps))

    def _loop(self, steps: Iterable[int]) -> Any:
        batches, train_step = self._batches, self._step
        for step in steps:
            images, labels = batches[step % len(batches)]
            loss = train_step(images, labels)
        return loss

    def _dataset(self, steps: range) -> Any:
        """The batches of these steps as a `tf.data.Dataset`, an element each."""
        import tensorflow as tf

        if self._pipeline is not None:
            return self._pipeline.dataset(steps.start % len(self._batches), len(steps))
        batches = [self._batches[step % len(self._batches)] for step in steps]
        images, labels = (tf.stack(part) for part in zip(*batches, strict=True))
        return tf.data.Dataset.from_tensor_slices((images, labels))

    def _fit_on(self, stretches: Iterable[tuple[Any, range, float]]) -> Any:
        for dataset, steps, rate in stretches:
            self._optimizer.set_rate(rate)
            history = self._model.fit(
                dataset, epochs=1, shuffle=False, verbose=0, callbacks=self._callbacks(steps)
            )
        return history.history["loss"][-1]

    def _callbacks(self, steps: range) -> list[Any]:
        """Where dropout masks are given, what puts each step's in place before its batch."""
        if self._job.dropout != "given":
            return []
        import keras

        given = iter(self._network.with_masks(steps))
        return [keras.callbacks.LambdaCallback(on_train_batch_begin=lambda *_, **__: next(given))]

    def _timed(self, training: Callable[[], Any]) -> float:
        self._synchronize()
        start = perf_counter()
        loss = training()
        self._synchronize()
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def loss(self) -> float:
        return float(self._loss)

    def correct(self, images: Array, labels: Array) -> int:
        import tensorflow as tf

        with tf.device(self._device):
            logits = self._logits(tf.constant(as_input(batch_to_keras(images), self._dtype)))
        return int((logits.numpy().argmax(axis=1) == labels).sum())

    def snapshot(self, step: int) -> Snapshot:
        batch = self._batches[step % len(self._batches)]
        return self._network.snapshot(step, batch, self._gradients)

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        pixels = images.numpy().transpose(0, 3, 1, 2).astype(np.float32)
        return np.ascontiguousarray(pixels), labels.numpy()

    def draw_batches(self, first: int, n: int) -> float:
        self._synchronize()
        start = perf_counter()
        for step in range(first, first + n):
            self._batches[step % len(self._batches)]
        self._synchronize()
        return perf_counter() - start

    def waited(self) -> float | None:
        # model.fit says nothing of its waiting.
        return self._batches.waited if isinstance(self._batches, DrawnBatches) and not self._fit else None

    def count_allocations(self, first: int, n: int) -> Allocations:
        return allocations(partial(self._timed, self._training(first, n)), n, self._on_gpu)

    def allocation_places(self, first: int, n: int) -> Places:
        return places(lambda step: self.run_steps(step, 1), range(first, first + n), self._on_gpu)

    def unseen_natively(self) -> str:
        return NATIVELY_UNSEEN if onednn_is_on() else ""

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:
        import tensorflow as tf

        from polybench.engines.support.keras.recurrent import options_of
        from polybench.engines.tensorflow.replay import calls

        with tf.device(self._device):
            placed = (tf.constant(as_input(batch_to_keras(array), self._dtype)) for array in (x, dy))
            eager, options = ("eager" in self._job.variants), options_of(self._job.variants)
            found = calls(piece, weights, *placed, eager=eager, lstm_options=options)
        return timed(found, self._synchronize)

    def replay_step(self) -> Mapping[Part, Replayed]:
        from polybench.engines.tensorflow.replay import step_calls

        images, labels = self._batches[0]
        logits = self._model(images, training=True)
        eager = "eager" in self._job.variants
        found = step_calls(logits, labels, self._optimizer.keras, self._loss_function, eager=eager)
        return timed(found, self._synchronize)

    def device_peak_bytes(self) -> int | None:
        import tensorflow as tf

        # The only visible GPU, so its number is 0.
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self._on_gpu else None

    def close(self) -> None:
        pass

    def _synchronize(self) -> None:
        if self._on_gpu:  # on the CPU a step returns when it is done
            import tensorflow as tf

            tf.test.experimental.sync_devices()
