"""Engines with optimizers as their frameworks have them, where that is not the canonical formula."""

from __future__ import annotations

import types
from unittest.mock import patch

import numpy as np

from polybench.core.job import Job
from polybench.engines.base import Weights
from polybench.engines.pytorch.engine import TorchEngine
from polybench.engines.tensorflow.engine import TensorFlowEngine


class KerasOwn(TensorFlowEngine):
    """Keras's Adam and RMSprop: epsilon is added before the bias correction, and under the root."""

    def build(self, job: Job, weights: Weights) -> None:
        import keras

        from polybench.engines.support.keras import optimizers as keras_optimizers

        own = keras_optimizers.ONE_BY_ONE._replace(
            adam=keras.optimizers.Adam, rmsprop=keras.optimizers.RMSprop
        )
        with patch.object(keras_optimizers.CanonicalOptimizer.__init__, "__defaults__", (own,)):
            super().build(job, weights)


class KerasRateInVelocity(TensorFlowEngine):
    """Keras's SGD under a schedule: the velocity keeps the rate with which it was made."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)

        def set_rate(optimizer: object, rate: float) -> None:
            optimizer.keras.learning_rate = np.float64(rate)

        self._optimizer.set_rate = types.MethodType(set_rate, self._optimizer)


class TorchDecoupledDecay(TorchEngine):
    """AdamW: the weights shrink beside the update."""

    def build(self, job: Job, weights: Weights) -> None:
        import torch

        with patch.object(torch.optim, "Adam", torch.optim.AdamW):
            super().build(job, weights)
