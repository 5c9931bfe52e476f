"""Data-parallel training as TensorFlow's users have it on one machine: `tf.distribute.MirroredStrategy`.

One process has a device for each replica, and a copy of every variable on each. Keras's optimizers add up
the gradients of all (`_all_reduce_sum_gradients`, keras/src/backend/tensorflow/optimizer.py), and its losses
are each replica's share of the mean (`scale_loss_for_distribution`, keras/src/losses/loss.py). On the CPU the
devices are logical ones, which share the process's threads, and gradients go round in a ring
(`CommunicationImplementation.RING`, tensorflow/python/distribute/mirrored_strategy.py).

MultiWorkerMirroredStrategy would be processes, but each serves gRPC to all who reach the machine: the server
of TensorFlow 2.21 listens at ::, though TF_CONFIG says 127.0.0.1, and does what it is asked
(https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polybench.core.job import Job
from polybench.engines.support.replicas import refuse_batch_norm, refuse_variants

_BATCH_NORM = "tf.keras.layers.BatchNormalization: synchronized=False, the default"


def check(job: Job) -> None:
    """Raise Unavailable where replicas cannot train this as one process would."""
    if job.workload.replicas > 1:
        refuse_batch_norm(job, _BATCH_NORM)
        refuse_variants(job, ("nofuse", "unrolled"))


def cut_cpu(count: int) -> None:
    """Have the CPU be so many logical devices, which is possible until the first of them computes."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    known = tf.config.get_logical_device_configuration(cpu)
    if len(known or [None]) != count:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


@functools.cache
def _strategy(kind: str, count: int) -> Any:
    """One for all networks of a process: it numbers its exchanges, and TensorFlow takes equal numbers of two
    for the same one."""
    import tensorflow as tf

    return tf.distribute.MirroredStrategy([f"/{kind}:{number}" for number in range(count)])


class Replicas:
    """The replicas of a job that has several.

    Attributes:
        count: how many.
    """

    def __init__(self, job: Job) -> None:
        self.count = job.workload.replicas
        self._strategy = _strategy("CPU" if job.device == "cpu" else "GPU", self.count)

    def scope(self) -> Any:
        """Where variables are made."""
        return self._strategy.scope()

    def split(self, value: Any) -> Any:
        """An array whose first axis is the batch, on all devices, a part on each."""
        import tensorflow as tf

        parts = value.reshape(self.count, -1, *value.shape[1:])
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    def assign_parts(self, variable: Any, value: Any) -> None:
        """Each replica's part of a batch to its own copy of a variable."""
        parts = value.reshape(self.count, -1, *value.shape[1:])
        for copy, part in zip(variable.value.values, parts, strict=True):
            copy.assign(part)

    def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
        """As `training_step.step_functions`, of all replicas; last the step without exchange of gradients.

        What they are given are values of `split`. Loss and gradients are those of the whole batch.
        """
        import tensorflow as tf

        strategy = self._strategy

        def of_part(images: Any, labels: Any) -> tuple[Any, Any]:
            with tf.GradientTape() as tape:
                loss = loss_function(labels, model(images, training=True))
            return loss, tape.gradient(loss, model.trainable_variables)

        def trained(images: Any, labels: Any) -> Any:
            loss, gradients = of_part(images, labels)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        def added(values: Any) -> Any:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

        def step(images: Any, labels: Any) -> Any:
            return added(strategy.run(trained, (images, labels)))

        def step_apart(images: Any, labels: Any) -> Any:
            with _apart(optimizer):  # while it is traced
                return added(strategy.run(trained, (images, labels)))

        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, Any]:
            loss, gradients = strategy.run(of_part, (images, labels))
            return added(loss), [added(gradient) for gradient in gradients]

        return tf.function(step), tf.function(loss_and_gradients), tf.function(step_apart)


@contextmanager
def _apart(optimizer: Any) -> Iterator[None]:
    """Each replica's update is made from its own gradients."""
    optimizer._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables
    try:
        yield
    finally:
        del optimizer._all_reduce_sum_gradients
