"""Engines with their frameworks' own optimizers, which differ from the canonical formulas."""

from __future__ import annotations

import types
from unittest.mock import patch

import numpy as np

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.engines.tf.engine import TensorFlowEngine
from polybench.engines.torch.engine import TorchEngine


class KerasEpsilon(TensorFlowEngine):
    """Keras's Adam and RMSprop: epsilon is added before the bias correction, and inside the root."""

    def build(self, job: Job, weights: Weights) -> None:
        import keras

        from polybench.engines.shared import keras_optimizers

        keras_classes = keras_optimizers.PER_VARIABLE._replace(
            adam=keras.optimizers.Adam, rmsprop=keras.optimizers.RMSprop
        )
        with patch.object(keras_optimizers.CanonicalOptimizer.__init__, "__defaults__", (keras_classes,)):
            super().build(job, weights)


class KerasRateInVelocity(TensorFlowEngine):
    """Keras's SGD with a schedule: the velocity is not rescaled when the rate changes."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)

        def set_rate(optimizer: object, rate: float) -> None:
            optimizer.keras.learning_rate = np.float64(rate)

        self._optimizer.set_learning_rate = types.MethodType(set_rate, self._optimizer)


class TorchDecoupledDecay(TorchEngine):
    """AdamW: weight decay is separate from the gradient."""

    def build(self, job: Job, weights: Weights) -> None:
        import torch

        with patch.object(torch.optim, "Adam", torch.optim.AdamW):
            super().build(job, weights)
