"""Keras on TensorFlow: the step is a `tf.function`. This module imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from polybench.engines.job import Job
from polybench.engines.keras.backend import NoOpBackend
from polybench.engines.shared.tf_common.allocations import (
    UNTRACED_NATIVE_ALLOCATIONS,
    count_allocations,
    find_allocation_sites,
    uses_onednn,
)
from polybench.engines.shared.tf_common.build_info import build_info
from polybench.engines.shared.tf_common.threads import set_threads
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TensorFlowBackend(NoOpBackend):
    """TensorFlow adapter; on the CPU, calls are synchronous."""

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__}

    def build_info(self) -> dict[str, str]:
        return build_info()

    def configure_process(self, job: Job) -> None:
        set_threads(job.workload.threads)

    def gradients(self, model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            with tf.GradientTape() as tape:
                loss = loss_function(labels, model(images, training=True))
            return loss, tape.gradient(loss, model.trainable_variables)

        compiled: Callable[[Any, Any], tuple[Any, list[Any]]] = tf.function(loss_and_gradients)
        return compiled

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return count_allocations(train, steps, on_gpu=False)

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        return find_allocation_sites(run_step, steps, on_gpu=False)

    def untraced_native_allocations(self) -> str:
        return UNTRACED_NATIVE_ALLOCATIONS if uses_onednn() else ""
