"""Train `imdb-bilstm` on tokens in plain TensorFlow: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from polybench.scripts.imdb_bilstm_tf import network, weights

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.001
UNTIMED_STEPS = 2
STEPS = 58

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
tf.config.experimental.enable_tensor_float_32_execution(TF32)
# Only the requested device is visible, so TensorFlow places everything there.
gpus, gpu = tf.config.list_physical_devices("GPU"), int(DEVICE.partition(":")[2] or 0)
tf.config.set_visible_devices([] if DEVICE == "cpu" else gpus[gpu], "GPU")

start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
tokens, labels = (np.load(folder / f"{name}.npy").astype(np.int32) for name in ("tokens", "labels"))
batches = [
    (tf.constant(tokens[indices]), tf.constant(labels[indices]))
    for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]


class Adam(keras.optimizers.Adam):
    """Adam of its paper's Algorithm 1, as all others have it.

    Keras adds epsilon to the root of v before v is corrected. And where a batch takes a row of an embedding
    several times, it adds up the squares of the gradients, and not the gradients.
    """

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: tf.Tensor) -> None:
        """Called by `apply_gradients` for each variable."""
        steps = keras.ops.cast(self.iterations + 1, variable.dtype)
        self.epsilon = 1e-8 * keras.ops.sqrt(1 - self.beta_2**steps)
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


model = network()
model.set_weights(weights(start))
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = Adam(LEARNING_RATE)
optimizer.build(model.trainable_variables)


def one_step(tokens: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Run one step; return the loss before the update."""
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(tokens, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


train_step = tf.function(one_step)
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
