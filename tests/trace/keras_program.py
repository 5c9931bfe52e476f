"""The same training in Keras, with channels last. `python -m tests.trace.keras_program FILE...` records one per file,
whose name lists the planted differences.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import polybench
from tests.trace.planted import Plant, batches, initial_weights, optimizer_settings


def _network(plants: Collection[Plant]) -> keras.Model:
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(6, 3, padding="valid" if "padding" in plants else "same", name="conv1")(x)
    epsilon, momentum = 1e-3 if "epsilon" in plants else 1e-5, 0.99 if "batch norm momentum" in plants else 0.9
    x = layers.BatchNormalization(epsilon=epsilon, momentum=momentum, name="norm")(x)
    x = x if "missing activation" in plants else layers.ReLU()(x)
    x = (layers.AveragePooling2D if "pooling" in plants else layers.MaxPooling2D)(2)(x)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, activation="relu", name="conv2")(x))
    x = layers.Dense(20, name="dense1")(x)
    x = keras.activations.gelu(x, approximate="tanh for exact GELU" in plants)
    return keras.Model(inputs, layers.Dense(5, name="dense2")(x))


def _optimizer(model: keras.Model, plants: Collection[Plant]) -> keras.optimizers.Optimizer:
    settings = optimizer_settings(plants)
    rate, decay = settings["learning_rate"], settings["weight_decay"]
    if settings["name"] == "sgd":
        return keras.optimizers.SGD(rate, momentum=settings["momentum"], nesterov=settings["nesterov"])
    beta1, beta2 = settings["betas"]
    optimizer = keras.optimizers.AdamW(
        rate, weight_decay=decay, beta_1=beta1, beta_2=beta2, epsilon=settings["eps"], amsgrad="amsgrad" in plants
    )
    if "decay on matrices only" in plants:
        optimizer.exclude_from_weight_decay([one for one in model.trainable_variables if len(one.shape) < 2])
    return optimizer


def train(file: Path, plants: Collection[Plant]) -> None:
    """Train eleven steps and record steps 0, 1, 2 and 10. Keras's SGD has no coupled decay."""
    keras.utils.clear_session()
    model = _network(plants)
    for name, weight in initial_weights(plants).items():
        layer, _, tensor = name.rpartition(".")
        parts = {"weight": "gamma", "bias": "beta"} if layer == "norm" else {"weight": "kernel", "bias": "bias"}
        kernel = weight[:, :, ::-1, ::-1] if name == "conv1.weight" and "flipped kernel" in plants else weight
        moved = kernel.transpose(2, 3, 1, 0) if weight.ndim == 4 else kernel.T
        getattr(model.get_layer(layer), parts[tensor]).assign(moved)
    optimizer = _optimizer(model, plants)
    smoothing = 0.1 if "label smoothing" in plants else 0.0
    with polybench.record(file, model=model, optimizer=optimizer) as trace:
        for images, labels in batches(plants):
            pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
            with tf.GradientTape() as tape:
                target = (1 - smoothing) * tf.one_hot(labels, 5) + smoothing / 5
                losses = keras.losses.categorical_crossentropy(target, model(pixels, training=True), from_logits=True)
                loss = tf.reduce_sum(losses) if "sum of the loss" in plants else tf.reduce_mean(losses)
                if "penalty" in plants:
                    loss += 0.005 * sum(tf.reduce_sum(one**2) for one in model.trainable_variables)
            gradients = tape.gradient(loss, model.trainable_variables)
            if "clipping" in plants:
                gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
            optimizer.apply(gradients, model.trainable_variables)
            trace.step(loss=loss, batch=(pixels, labels), gradients=gradients)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        train(Path(file), Path(file).stem.split("+"))
