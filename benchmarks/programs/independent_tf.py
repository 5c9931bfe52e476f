"""Three CIFAR-10 networks in Keras on random images, written without a look at polybench or its scripts.

    python independent_tf.py lenet|dlframeworks-cnn|resnet32 BATCH_SIZE THREADS STEPS

Trains STEPS steps for each line on standard input, in the custom training loop of TensorFlow's guide, and
prints their median time as JSON.
"""

import json
import statistics
import sys
import time

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers


def lenet():
    model = keras.Sequential([keras.Input(shape=(32, 32, 3))])
    model.add(layers.Conv2D(16, (5, 5), activation="relu"))
    model.add(layers.MaxPooling2D((2, 2)))
    model.add(layers.Conv2D(8, (5, 5), activation="relu"))
    model.add(layers.MaxPooling2D((2, 2)))
    model.add(layers.Flatten())
    model.add(layers.Dense(120))
    model.add(layers.Dense(84))
    model.add(layers.Dense(10))
    return model


def dlframeworks_cnn():
    model = keras.Sequential([keras.Input(shape=(32, 32, 3))])
    for filters in (50, 100):
        model.add(layers.Conv2D(filters, (3, 3), padding="same", activation="relu"))
        model.add(layers.Conv2D(filters, (3, 3), padding="same"))
        model.add(layers.MaxPooling2D((2, 2)))
        model.add(layers.Activation("relu"))
        model.add(layers.Dropout(0.25))
    model.add(layers.Flatten())
    model.add(layers.Dense(512, activation="relu"))
    model.add(layers.Dropout(0.5))
    model.add(layers.Dense(10))
    return model


def residual(inputs, filters, strides):
    x = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    if strides > 1:
        inputs = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(inputs)
    return layers.Activation("relu")(layers.Add()([x, inputs]))


def resnet32():
    inputs = keras.Input(shape=(32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    for stage in range(3):
        for block in range(5):
            x = residual(x, 16 * 2**stage, 2 if stage and not block else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


def main():
    build = {"lenet": lenet, "dlframeworks-cnn": dlframeworks_cnn, "resnet32": resnet32}[sys.argv[1]]
    batch_size, threads, steps = map(int, sys.argv[2:])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    model = build()
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss_value = loss_fn(y, model(x, training=True))
        grads = tape.gradient(loss_value, model.trainable_weights)
        optimizer.apply_gradients(zip(grads, model.trainable_weights, strict=True))
        return loss_value

    data = [
        (tf.random.uniform((batch_size, 32, 32, 3)), tf.random.uniform((batch_size,), maxval=10, dtype=tf.int64))
        for _ in range(steps)
    ]
    for _ in sys.stdin:
        times = []
        for x, y in data:
            start = time.perf_counter()
            loss_value = train_step(x, y)
            times.append(time.perf_counter() - start)
        row = {"median_step_seconds": statistics.median(times), "loss": float(loss_value)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
