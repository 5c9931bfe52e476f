"""Training step on a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def step_functions(model: Any, optimizer: Any, loss_function: Any, wrap: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Make the training step, (images, labels) -> loss, and the same without update, -> (loss, gradients).

    Args:
        model: Keras model.
        optimizer: Keras optimizer of its trainable variables.
        loss_function: (labels, logits) -> mean loss.
        wrap: converts a Python function to a `tf.function`, or returns it unchanged.
    """
    import tensorflow as tf

    def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(images, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    def train_step(images: Any, labels: Any) -> Any:
        loss, gradients = loss_and_gradients(images, labels)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return wrap(train_step), wrap(loss_and_gradients)
