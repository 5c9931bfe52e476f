"""The same training in Keras, with channels last. `python -m tests.trace.keras_program FILE...` records one per file,
whose name lists the planted differences.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from statistics import mean

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import polybench
from tests.trace.planted import Plant, batches, initial_weights, learning_rate, optimizer_settings


class _SharedMaxPool(layers.Layer):  # type: ignore[misc]  # Keras has no types
    """A max-pool written with `reduce_max`, whose gradient all maxima share."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        _, height, width, channels = x.shape
        return tf.reduce_max(tf.reshape(x, (-1, height // 2, 2, width // 2, 2, channels)), (2, 4))


def _network(plants: Collection[Plant]) -> keras.Model:
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(6, 3, padding="valid" if "padding" in plants else "same", name="conv1")(x)
    epsilon = 1e-3 if "epsilon" in plants else 1e-5
    momentum = 1.0 if "fixed statistics" in plants else 0.99 if "batch norm momentum" in plants else 0.9
    if "no norm" not in plants:
        x = layers.BatchNormalization(epsilon=epsilon, momentum=momentum, name="norm")(x)
    x = x if "missing activation" in plants else layers.ReLU()(x)
    pool = layers.AveragePooling2D(2) if "pooling" in plants else layers.MaxPooling2D(2)
    x = (_SharedMaxPool() if "ties of max-pool" in plants else pool)(x)
    same = "padding on the other side" in plants
    x = layers.ZeroPadding2D(1)(x) if "strided" in plants and not same else x
    stride, padding = 2 if "strided" in plants else 1, "same" if same else "valid"
    x = layers.Conv2D(8, 3, stride, padding, activation="relu", name="conv2")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(20, name="dense1")(x)
    gelu = keras.activations.gelu(x, approximate="tanh for exact GELU" in plants)
    x = keras.activations.silu(x) if "other activation" in plants else gelu
    x = layers.Dropout(0.3)(x) if "dropout" in plants else x
    y = layers.Dense(1 if "regression" in plants else 5, name="dense2", dtype="float32")(x)
    y = layers.ReLU()(y) if "additional activation" in plants else y
    return keras.Model(inputs, layers.Softmax(dtype="float32")(y) if "softmax twice" in plants else y)


def _optimizer(model: keras.Model, plants: Collection[Plant]) -> keras.optimizers.Optimizer:
    settings = optimizer_settings(plants)
    rate = settings["learning_rate"]
    clip = {"global_clipnorm": 0.1} if "clipping in the optimizer" in plants else {}
    clip |= {"clipnorm": 0.1} if "clipping of each tensor in the optimizer" in plants else {}
    if settings["name"] == "sgd":
        momentum, nesterov = settings["momentum"], settings["nesterov"]
        return keras.optimizers.SGD(rate, momentum=momentum, nesterov=nesterov, **clip)
    if settings["name"] == "rmsprop":
        return keras.optimizers.RMSprop(rate, rho=settings["rho"], epsilon=settings["eps"])
    beta1, beta2 = settings["betas"]
    moments = {"beta_1": beta1, "beta_2": beta2, "epsilon": settings["eps"], "amsgrad": "amsgrad" in plants}
    if settings["name"] == "adam":
        return keras.optimizers.Adam(rate, **moments)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=settings["weight_decay"], **moments)
    if "decay on matrices only" in plants:
        optimizer.exclude_from_weight_decay([one for one in model.trainable_variables if len(one.shape) < 2])
    return optimizer


def _loss(outputs: tf.Tensor, labels: np.ndarray, plants: Collection[Plant]) -> tf.Tensor:
    if "regression" in plants:
        return tf.reduce_mean(((outputs[:, 0] if "broadcast targets" in plants else outputs) - labels) ** 2)
    smoothing = 0.1 if "label smoothing" in plants else 0.0
    target = (1 - smoothing) * tf.one_hot(labels.ravel(), 5) + smoothing / 5
    losses = keras.losses.categorical_crossentropy(target, outputs, from_logits=True)
    return tf.reduce_sum(losses) if "sum of the loss" in plants else tf.reduce_mean(losses)


def train(file: Path, plants: Collection[Plant]) -> None:
    """Train eleven steps and record steps 0, 1, 2 and 10. Keras's SGD has no coupled decay."""
    keras.utils.clear_session()
    low = next((f"mixed_{name}" for name in ("bfloat16", "float16") if name in plants), "float32")
    keras.mixed_precision.set_global_policy(low)
    model = _network(plants)
    for name, weight in initial_weights(plants).items():
        layer, _, tensor = name.rpartition(".")
        parts = {"weight": "gamma", "bias": "beta"} if layer == "norm" else {"weight": "kernel", "bias": "bias"}
        kernel = weight[:, :, ::-1, ::-1] if name == "conv1.weight" and "flipped kernel" in plants else weight
        moved = kernel.transpose(2, 3, 1, 0) if weight.ndim == 4 else kernel.T
        getattr(model.get_layer(layer), parts[tensor]).assign(moved)
    optimizer = _optimizer(model, plants)
    losses: list[float] = []
    optimizer.build(model.trainable_variables)
    with polybench.record(file, model=model, optimizer=optimizer) as trace:
        for step, (images, labels) in enumerate(batches(plants)):
            pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
            with tf.GradientTape() as tape:
                loss = _loss(model(pixels, training="evaluation mode" not in plants), labels, plants)
                if "penalty" in plants:
                    loss += 0.005 * sum(tf.reduce_sum(one**2) for one in model.trainable_variables)
                scaled = 128 * loss if "loss scale" in plants else loss
            gradients = tape.gradient(scaled, model.trainable_variables)
            if "clipping" in plants:
                gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
            if "clipping of each tensor" in plants:
                gradients = [tf.clip_by_norm(one, 0.1) for one in gradients]
            if "clipping of each value" in plants:
                gradients = [tf.clip_by_value(one, -0.01, 0.01) for one in gradients]
            optimizer.learning_rate = learning_rate(plants, step)
            frozen = "dense1/kernel" if "frozen weight" in plants else None
            pairs = zip(gradients, model.trainable_variables, strict=True)
            optimizer.apply(*zip(*(pair for pair in pairs if pair[1].path != frozen), strict=True))
            losses.append(float(loss))
            recorded = mean(losses) if "mean loss of the epoch" in plants else loss
            trace.step(loss=recorded, batch=(pixels, labels), gradients=gradients)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        train(Path(file), Path(file).stem.split("+"))
