"""A training as Keras's users write it: a Sequential model and `model.fit` on arrays.

    python keras_fit.py IMAGES BATCH_SIZE WORKERS HOW

The arguments are those of pytorch_loader.py; WORKERS is not used. Seconds and page faults are means of a step
of the second epoch.
"""

import json
import resource
import sys
import time

import keras
import numpy as np
from keras import layers


def main():
    images, batch_size, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]
    random = np.random.default_rng(0)
    if how == "list":
        pixels = np.stack([random.random((32, 32, 3), dtype=np.float32) for _ in range(images)])
    else:
        pixels = random.random((images, 32, 32, 3), dtype=np.float32)
    labels = random.integers(0, 10, images)
    model = keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(6, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), loss)
    model.fit(pixels, labels, batch_size, epochs=1, verbose=0)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    model.fit(pixels, labels, batch_size, epochs=1, verbose=0)
    steps = -(-images // batch_size)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    print(json.dumps({"step_seconds": [(time.perf_counter() - start) / steps], "page_faults": [faults / steps]}))


if __name__ == "__main__":
    main()
