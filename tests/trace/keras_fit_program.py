"""Trainings by Keras's `fit`, recorded as the guide shows it and with `logs["loss"]`, and the same training by a loop.

`python -m tests.trace.keras_fit_program FOLDER` writes loop.trace, port.trace and logs.trace.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf

import polybench

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "compare_trainings.md"


class _RecordLogs(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    def __init__(self, trace: Any) -> None:
        super().__init__()
        self.trace = trace

    def on_train_batch_end(self, _: int, logs: Any = None) -> None:
        self.trace.step(loss=logs["loss"])


def _training() -> dict[str, Any]:
    """Return the variables of the guide's programs; the labels have the shape (N, 1) of `keras.datasets`."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input((8,)), keras.layers.Dense(12, "tanh", kernel_regularizer="l2"), keras.layers.Dense(5)]
    random = np.random.default_rng(0)
    return {
        "model": keras.Sequential(layers),
        "optimizer": keras.optimizers.Adam(0.01),
        "loss_function": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "images": random.normal(size=(128, 8)).astype("f4"),
        "labels": random.integers(0, 5, (128, 1)),
        **{"keras": keras, "polybench": polybench, "tf": tf},
    }


def record_loop() -> None:
    """Record `loop.trace`, whose labels have the shape (N,)."""
    names = _training()
    model, optimizer = names["model"], names["optimizer"]
    with polybench.record("loop.trace", model=model, optimizer=optimizer, steps=(0, 1, 2)) as trace:
        for start in range(0, 128, 32):
            images, labels = names["images"][start : start + 32], names["labels"][start : start + 32, 0]
            with tf.GradientTape() as tape:
                loss = names["loss_function"](labels, model(images, training=True)) + sum(model.losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            trace.step(loss=loss, batch=(images, labels), gradients=gradients)


def record_fit() -> None:
    """Run the guide's program, which records `port.trace`."""
    (program,) = [one for one in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "model.fit" in one]
    exec(program, _training())


def record_logs() -> None:
    """Record `logs.trace` with the loss that `fit` logs."""
    names = _training()
    model, optimizer = names["model"], names["optimizer"]
    model.compile(optimizer, names["loss_function"])
    with polybench.record("logs.trace", model=model, optimizer=optimizer, steps=(0, 1, 2)) as trace:
        callbacks = [_RecordLogs(trace)]
        model.fit(names["images"], names["labels"], batch_size=32, shuffle=False, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    record_loop()
    record_fit()
    record_logs()
