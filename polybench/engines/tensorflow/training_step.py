"""The step that trains on a batch."""

from __future__ import annotations

from typing import Any


def step_functions(model: Any, optimizer: Any, loss_function: Any, xla: bool) -> tuple[Any, Any]:
    """The training step, (images, labels) -> loss, and the same without its update, -> (loss, gradients)."""
    import tensorflow as tf

    def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(images, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    def train_step(images: Any, labels: Any) -> Any:
        loss, gradients = loss_and_gradients(images, labels)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled = tf.function(jit_compile=xla or None)  # None leaves it to TensorFlow's own switches
    return compiled(train_step), compiled(loss_and_gradients)
