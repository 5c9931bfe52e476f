"""Train `lenet` on CIFAR-10 in plain Keras: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

BACKEND = "tensorflow"
THREADS = 2
LEARNING_RATE = 0.01
MOMENTUM = 0.9
UNTIMED_STEPS = 2
STEPS = 58

# Keras reads the first variable at import, JAX the second at the first use of a device. The last one hides all GPUs.
os.environ |= {"KERAS_BACKEND": BACKEND, "NPROC": str(THREADS), "CUDA_VISIBLE_DEVICES": ""}

import keras

from polybench.scripts.lenet_tf import network

if BACKEND == "tensorflow":
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
elif BACKEND == "torch":
    import torch

    torch.set_num_threads(THREADS)

# The format of the official files: 1 byte label, then red, green and blue planes.
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    images = keras.ops.convert_to_tensor(np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)))  # channels last
    batches.append((images, keras.ops.convert_to_tensor(records[indices, 0].astype(np.int32))))

model = network()
flattened = None  # height, width and channels of the input of the next dense layer
for layer in model.layers:
    if isinstance(layer, keras.layers.Flatten):
        flattened = layer.input.shape[1:]
    elif hasattr(layer, "kernel"):  # batch norm starts at 1 and 0, as in initial_state.npz
        weight = start[f"{layer.name}.weight"]
        if flattened:  # channels last here, first in initial_state.npz
            height, width, channels = flattened
            images = weight.reshape(-1, channels, height, width)
            weight, flattened = images.transpose(0, 2, 3, 1).reshape(weight.shape), None
        kernel = weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T
        layer.set_weights([kernel, start[f"{layer.name}.bias"]] if layer.use_bias else [kernel])
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM), loss_function)

train_step = model.train_on_batch
losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
for batch in batches[UNTIMED_STEPS:]:
    begin = time.perf_counter()
    loss = train_step(*batch)
    seconds.append(time.perf_counter() - begin)
    losses.append(loss)

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
