"""The tf engine with Keras's own optimizers, and with bugs in its data-parallel training."""

from __future__ import annotations

import types
from typing import Any
from unittest.mock import patch

import keras
import numpy as np

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.engines.shared import keras_optimizers
from polybench.engines.shared.keras_model import CanonicalModel
from polybench.engines.tf import engine
from polybench.engines.tf.engine import TensorFlowEngine
from polybench.engines.tf.replicas import Replicas


class KerasEpsilon(TensorFlowEngine):
    """Keras's Adam and RMSprop: epsilon is added before the bias correction, and inside the root."""

    def build(self, job: Job, weights: Weights) -> None:
        keras_classes = keras_optimizers.PER_VARIABLE._replace(
            adam=keras.optimizers.Adam, rmsprop=keras.optimizers.RMSprop
        )
        with patch.object(CanonicalModel.optimizer, "__defaults__", (keras_classes,)):
            super().build(job, weights)


class KerasRateInVelocity(TensorFlowEngine):
    """Keras's SGD with a schedule: the velocity is not rescaled when the rate changes."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)

        def set_rate(optimizer: object, rate: float) -> None:
            optimizer.keras.learning_rate = np.float64(rate)

        self._optimizer.set_learning_rate = types.MethodType(set_rate, self._optimizer)


class _WithReplicas(TensorFlowEngine):
    replicas: type[Replicas]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "Replicas", self.replicas):
            super().build(job, weights)


class SummedGradients(_WithReplicas):
    """Each replica's loss is not scaled by the number of replicas."""

    class replicas(Replicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            return super().step_functions(
                model, optimizer, lambda labels, logits: self.count * loss_function(labels, logits)
            )


class NoSync(_WithReplicas):
    """Each replica trains with its own gradients."""

    class replicas(Replicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            _, gradients, step_without_allreduce = super().step_functions(model, optimizer, loss_function)
            return step_without_allreduce, gradients, step_without_allreduce


class SameShard(_WithReplicas):
    """All replicas train on the first shard of a batch."""

    class replicas(Replicas):  # noqa: N801
        def split(self, value: Any) -> Any:
            first = value[: len(value) // self.count]
            return super().split(np.concatenate([first] * self.count))
