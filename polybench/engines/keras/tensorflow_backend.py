"""Keras on TensorFlow: the step is a `tf.function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from polybench.engines.job import Job
from polybench.engines.keras.backend import Backend, LossAndGradients
from polybench.engines.shared import tensorflow
from polybench.engines.shared.frameworks import explain_eager
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TensorFlowBackend(Backend):
    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__}

    def build_info(self) -> dict[str, str]:
        return tensorflow.build_info()

    def configure_process(self, job: Job) -> None:
        tensorflow.set_threads(job.workload.threads)

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
        compiled: LossAndGradients = tf.function(tensorflow.make_loss_and_gradients(model, loss_function))
        return compiled

    def explain_eager(self) -> str:
        return explain_eager("TensorFlow ran every tf.function eagerly") if tf.config.functions_run_eagerly() else ""

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return tensorflow.count_allocations(train, steps, on_gpu=False)

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        return tensorflow.find_allocation_sites(run_step, steps, on_gpu=False)

    def untraced_native_allocations(self) -> str:
        tensorflow.check_native_allocations()
        return ""
