"""A second TensorFlow device: another logical CPU, without soft placement, which computes real values.

Import it in a process of its own, before TensorFlow starts its devices. TensorFlow copies tensors between devices
silently, so tests ask where they are.
"""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import patch

import tensorflow as tf

from polybench.engines.base import Array, Weights
from polybench.engines.job import Job
from polybench.engines.shared.tensorflow import set_threads
from polybench.engines.tf import engine
from polybench.engines.tf.emitter import emit
from polybench.engines.tf.engine import TensorFlowEngine

NAME = "/CPU:1"

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], 2 * [tf.config.LogicalDeviceConfiguration()]
)
set_threads(2)  # those of `small_datasets.job`: their number cannot be changed later
tf.config.set_soft_device_placement(False)


class StandInEngine(TensorFlowEngine):
    """The tf engine with its weights and batches on the stand-in device, which is the default device like a GPU."""

    _device = property(lambda _: NAME, lambda *_: None)  # type: ignore[assignment]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", lambda job: emit(job).replace('DEVICE = "/CPU:0"', f'DEVICE = "{NAME}"')):
            super().build(job, weights)


def _on_device(method: Any) -> Any:
    @functools.wraps(method)
    def on_device(*arguments: Any) -> Any:
        with tf.device(NAME):
            return method(*arguments)

    return on_device


_METHODS = (
    "build",
    "load",
    "reset",
    "set_initial_weights",
    "restore_training_state",
    "run_steps",
    "snapshot",
    "logits",
)
for _name in _METHODS:
    setattr(StandInEngine, _name, _on_device(getattr(StandInEngine, _name)))


class BatchesOnCPU(StandInEngine):
    """Leaves the batches on the first device."""

    def load(self, images: Array, labels: Array) -> None:
        super().load(images, labels)
        with tf.device("/CPU:0"):
            self._batches = [tuple(map(tf.identity, batch)) for batch in self._batches]


def devices(built: Any) -> set[str]:
    """Return the devices of everything that a step reads or writes."""
    variables = (*built._model.variables, *built._state.optimizer.variables)
    tensors = [*(variable.value for variable in variables), *built._batches[0], built._loss]
    return {tensor.device.rpartition("device:")[2] for tensor in tensors}
