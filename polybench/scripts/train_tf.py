"""Train `lenet` on CIFAR-10 in plain TensorFlow: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from polybench.scripts.lenet_tf import network

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.01
MOMENTUM = 0.9
EAGER = False
XLA = False
UNTIMED_STEPS = 2
STEPS = 58

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
tf.config.experimental.enable_tensor_float_32_execution(TF32)
# Only the requested device is visible, so TensorFlow places everything there.
gpus, gpu = tf.config.list_physical_devices("GPU"), int(DEVICE.partition(":")[2] or 0)
tf.config.set_visible_devices([] if DEVICE == "cpu" else gpus[gpu], "GPU")

# The format of the official files: 1 byte label, then red, green and blue planes.
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    images = tf.constant(pixels.transpose(0, 2, 3, 1))  # channels last
    batches.append((images, tf.constant(records[indices, 0].astype(np.int64))))

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
optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
optimizer.build(model.trainable_variables)


def one_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Run one step; return the loss before the update."""
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


train_step = one_step if EAGER else tf.function(one_step, jit_compile=XLA or None)
losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
if DEVICE == "cpu":
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        loss = train_step(*batch)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    tf.test.experimental.sync_devices()
    begin = time.perf_counter()
    losses += [train_step(*batch) for batch in batches[UNTIMED_STEPS:]]
    tf.test.experimental.sync_devices()
    seconds.append((time.perf_counter() - begin) / STEPS)

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
