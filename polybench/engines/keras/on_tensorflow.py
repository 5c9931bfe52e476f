"""Keras on TensorFlow: the step is a `tf.function`. Imported where TensorFlow is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.job import Job
from polybench.engines.keras.backend import Without
from polybench.engines.support.tensorflow.allocations import (
    NATIVELY_UNSEEN,
    allocations,
    onednn_is_on,
    places,
)
from polybench.engines.support.tensorflow.build_facts import build_facts
from polybench.engines.support.tensorflow.threads import set_threads


class OnTensorFlow(Without):
    """On the CPU a call returns when it is done."""

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__}

    def build_facts(self) -> dict[str, str]:
        return build_facts()

    def prepare(self, job: Job) -> None:
        set_threads(job.workload.threads)

    def gradients(self, model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            with tf.GradientTape() as tape:
                loss = loss_function(labels, model(images, training=True))
            return loss, tape.gradient(loss, model.trainable_variables)

        compiled: Callable[[Any, Any], tuple[Any, list[Any]]] = tf.function(loss_and_gradients)
        return compiled

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return allocations(train, steps, on_gpu=False)

    def allocation_places(self, run_step: Callable[[int], object], steps: range) -> Places:
        return places(run_step, steps, on_gpu=False)

    def unseen_natively(self) -> str:
        return NATIVELY_UNSEEN if onednn_is_on() else ""
