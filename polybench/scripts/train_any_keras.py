"""Train `lenet` in plain Keras: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

The initial weights are in the .npz file beside this one. initial_state.npz has the numbers of each batch's inputs.
#: if images
FOLDER has images in CIFAR-10's format, `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds
and losses of steps.
#: if tokens
FOLDER has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
#: end
"""

import json
#: if images|cosine
import math
#: end
#: if keras
import os
#: end
import sys
import time
from pathlib import Path

#: if tf
import keras
#: end
import numpy as np
#: if tf
import tensorflow as tf
from keras import layers

DEVICE = "cpu"
#: if keras
BACKEND = "tensorflow"
#: end
THREADS = 2
#: if tf
TF32 = False
EAGER = False
XLA = False
#: end
#: if images
SHAPE = (3, 32, 32)
#: end
CLASSES = 10
LEARNING_RATE = 0.01
#: if cosine
WARMUP_STEPS = 0
COSINE_STEPS = 1000
MIN_LEARNING_RATE = 0.0
#: if velocity
MOMENTUM = 0.9
#: if betas
BETAS = (0.9, 0.999)
#: if adamw
WEIGHT_DECAY = 0.0
#: if clip
GRADIENT_CLIP = 1.0
#: end
LABEL_SMOOTHING = 0.0
UNTIMED_STEPS = 2
STEPS = 58

#: if keras
# Keras reads the first variable at import, JAX the second at the first use of a device. The last one hides all GPUs.
os.environ |= {"KERAS_BACKEND": BACKEND, "NPROC": str(THREADS), "CUDA_VISIBLE_DEVICES": ""}

import keras
from keras import layers

if BACKEND == "tensorflow":
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
elif BACKEND == "torch":
    import torch

    torch.set_num_threads(THREADS)
#: if tf
tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
tf.config.experimental.enable_tensor_float_32_execution(TF32)
# Only the requested device is visible, so TensorFlow places everything there.
gpus, gpu = tf.config.list_physical_devices("GPU"), int(DEVICE.partition(":")[2] or 0)
tf.config.set_visible_devices([] if DEVICE == "cpu" else gpus[gpu], "GPU")
#: end


# <network>

start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
#: if images
# The format of the official files: 1 byte label, then the planes of an image.
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 1 + math.prod(SHAPE))
images = records[:, 1:].reshape(-1, *SHAPE).astype(np.float32) / 255
inputs, labels = np.moveaxis(images, 1, -1), records[:, 0]  # channels last
#: if tokens
inputs, labels = (np.load(folder / f"{name}.npy").astype(np.int32) for name in ("tokens", "labels"))
#: end
targets = np.eye(CLASSES, dtype=np.float32)
batches = [
    (keras.ops.convert_to_tensor(inputs[indices]), keras.ops.convert_to_tensor(targets[labels[indices]]))
    for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]
#: if cosine


class Cosine(keras.optimizers.schedules.LearningRateSchedule):
    """A warm-up, then half a cosine."""

    def __call__(self, step):
        """Return the learning rate of a step."""
        step = keras.ops.cast(step, "float32")
        warmup = LEARNING_RATE * (step + 1) / (WARMUP_STEPS + 1)
        progress = keras.ops.minimum(1.0, (step - WARMUP_STEPS) / (COSINE_STEPS - WARMUP_STEPS))
        cosine = (1 + keras.ops.cos(math.pi * progress)) / 2 * (LEARNING_RATE - MIN_LEARNING_RATE)
        return keras.ops.where(step < WARMUP_STEPS, warmup, MIN_LEARNING_RATE + cosine)


#: end
rate = LEARNING_RATE
#: if cosine
rate = Cosine()
#: end
settings = {}
#: if velocity
settings |= {"momentum": MOMENTUM}
#: if nesterov
settings |= {"nesterov": True}
#: if adam|adamw
settings |= {"beta_1": BETAS[0], "beta_2": BETAS[1]}
#: if adamw
settings |= {"weight_decay": WEIGHT_DECAY}
#: if clip
settings |= {"global_clipnorm": GRADIENT_CLIP}
#: if adam|adamw


class Adam(keras.optimizers.Adam):
    """Adam of its paper's Algorithm 1, as all others have it.

    Keras adds epsilon to the root of v before v is corrected. And where a batch takes a row of an embedding
    several times, it adds up the squares of the gradients, and not the gradients.
    """

    def update_step(self, gradient, variable, learning_rate):
        """Called by `apply_gradients` for each variable."""
        steps = keras.ops.cast(self.iterations + 1, variable.dtype)
        self.epsilon = 1e-8 * keras.ops.sqrt(1 - self.beta_2**steps)
        super().update_step(keras.ops.convert_to_tensor(gradient, sparse=False), variable, learning_rate)


optimizer = Adam(rate, **settings)
#: if adamw
# Biases, weights of norms and class tokens do not decay.
optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "token"])
#: if velocity


class Momentum(keras.optimizers.SGD):
    """Momentum whose velocity does not have the rate as a factor: a new rate also applies to earlier gradients."""

    def update_step(self, gradient, variable, learning_rate):
        """Called by `apply_gradients` for each variable."""
        velocity = self.momentums[self._get_variable_index(variable)]
        velocity.assign(self.momentum * velocity + gradient)
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        variable.assign(variable - learning_rate * direction)


optimizer = Momentum(rate, **settings)
#: if sgd
optimizer = keras.optimizers.SGD(rate, **settings)
#: end
loss_function = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=LABEL_SMOOTHING)
#: if tf
optimizer.build(network.trainable_variables)


def one_step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Run one step; return the loss before the update."""
    with tf.GradientTape() as tape:
        loss = loss_function(targets, network(inputs, training=True))
    gradients = tape.gradient(loss, network.trainable_variables)
    optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
    return loss


train_step = one_step if EAGER else tf.function(one_step, jit_compile=XLA or None)
#: if keras
network.compile(optimizer, loss_function)

train_step = network.train_on_batch
#: end
losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
#: if tf
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
#: if keras
for batch in batches[UNTIMED_STEPS:]:
    begin = time.perf_counter()
    loss = train_step(*batch)
    seconds.append(time.perf_counter() - begin)
    losses.append(loss)
#: end

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
