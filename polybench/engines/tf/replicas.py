"""Idiomatic data-parallel training in TensorFlow on one machine: `tf.distribute.MirroredStrategy`.

One process has a device for each replica, and a copy of every variable on each device. Keras's optimizers sum
the gradients (`_all_reduce_sum_gradients`, keras/src/backend/tensorflow/optimizer.py), and its losses are
scaled to each replica's share of the mean (`scale_loss_for_distribution`, keras/src/losses/loss.py). On the
CPU, the devices are logical ones that share the process's threads, and gradients are exchanged by ring
all-reduce (`CommunicationImplementation.RING`, tensorflow/python/distribute/mirrored_strategy.py).

MultiWorkerMirroredStrategy would use processes, but its gRPC server is not secure: in TensorFlow 2.21, it
listens on :: even if TF_CONFIG says 127.0.0.1, and executes every request
(https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from polybench.engines.job import Job
from polybench.engines.shared.frameworks import cuda_index

CUDA_INSTALL = "pip install 'tensorflow[and-cuda]'"


def split_cpu_devices(count: int) -> None:
    """Split the CPU into logical devices, which is only possible before the first computation."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    current = tf.config.get_logical_device_configuration(cpu)
    if len(current or [None]) != count:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


@functools.cache
def _strategy(device_type: str, count: int) -> Any:
    """Return the process's only strategy: TensorFlow confuses the numbered exchanges of two strategies."""
    return tf.distribute.MirroredStrategy([f"/{device_type}:{number}" for number in range(count)])


class Replicas:
    """Replicas of a data-parallel job, which its program's `STRATEGY` has."""

    def __init__(self, job: Job) -> None:
        self._without_allreduce: Any = None
        self.count = job.workload.replicas
        self.strategy = _strategy("CPU" if job.device == "cpu" else "GPU", self.count)

    def gradients(self, compute: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
        """Make the function of loss and gradients of a whole batch from that of a replica's share."""

        def reduce_sum(values: Any) -> Any:
            return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, Any]:
            loss, gradients = self.strategy.run(compute, (images, labels))
            return reduce_sum(loss), [reduce_sum(gradient) for gradient in gradients]

        return tf.function(loss_and_gradients)

    def without_allreduce(self, step: Any, optimizer: Any) -> Any:
        """Return a training step without gradient exchange; `step` is the program's `tf.function`."""
        if self._without_allreduce is None:

            def step_without_allreduce(images: Any, labels: Any) -> Any:
                with _without_allreduce(optimizer):  # during tracing
                    return step.python_function(images, labels)

            self._without_allreduce = tf.function(step_without_allreduce)
        return self._without_allreduce


@contextmanager
def _without_allreduce(optimizer: Any) -> Iterator[None]:
    """Let each replica update its copy from its own gradients."""
    optimizer._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables
    try:
        yield
    finally:
        del optimizer._all_reduce_sum_gradients


def set_visible_devices(device: str, count: int = 1) -> None:
    """Make `count` GPUs visible, starting with `device`, and hide all others so that TensorFlow cannot use them."""
    gpus = tf.config.list_physical_devices("GPU")
    if device == "cpu":
        visible = []
    else:
        first = int(device.partition(":")[2] or 0)
        cuda_build = tf.test.is_built_with_cuda()
        visible = [
            gpus[cuda_index(f"cuda:{number}", len(gpus), cuda_build=cuda_build, install=CUDA_INSTALL)]
            for number in range(first, first + count)
        ]
        for gpu in visible:
            if not tf.config.experimental.get_memory_growth(gpu):
                # By default, TensorFlow allocates all of a GPU's memory, which hides how much it needs.
                tf.config.experimental.set_memory_growth(gpu, True)
    if tf.config.get_visible_devices("GPU") != visible:
        tf.config.set_visible_devices(visible, "GPU")
