"""Train `imdb-bilstm` on tokens in plain Keras: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

THREADS = 2
LEARNING_RATE = 0.001
UNTIMED_STEPS = 2
STEPS = 58

# Keras reads the first variable at import; the second hides all GPUs from TensorFlow.
os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}

import keras

from polybench.scripts.imdb_bilstm_tf import network, weights

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)

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
model.compile(Adam(LEARNING_RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

train_step = model.train_on_batch
losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
for batch in batches[UNTIMED_STEPS:]:
    begin = time.perf_counter()
    loss = train_step(*batch)
    seconds.append(time.perf_counter() - begin)
    losses.append(loss)

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
