"""Train `imdb-bilstm` on tokens in plain JAX: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from polybench.scripts.imdb_bilstm_jax import network

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.001
UNTIMED_STEPS = 2
STEPS = 58

os.environ["NPROC"] = str(THREADS)  # read at the first use of a device
jax.config.update("jax_default_matmul_precision", "tensorfloat32" if TF32 else "float32")
kind, _, number = DEVICE.partition(":")
device = jax.devices(kind)[int(number or 0)]

start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
tokens, labels = (np.load(folder / f"{name}.npy").astype(np.int32) for name in ("tokens", "labels"))
batches = [
    jax.device_put((tokens[indices], labels[indices]), device) for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]

tensors = {name: start[name] for name in start.files if name != "batches"}
weights = jax.device_put(tensors, device, may_alias=False)
state = jax.device_put({"key": jax.random.key(0)}, device, may_alias=False)
optimizer = optax.adam(LEARNING_RATE)
optimizer_state = optimizer.init(weights)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(weights: Any, state: Any, optimizer_state: Any, tokens: jax.Array, labels: jax.Array) -> Any:
    """Run one step; return the new state and the loss before the update."""

    def loss_of(weights: Any) -> Any:
        logits, changed = network(weights, state, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

    (loss, changed), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state)
    return (optax.apply_updates(weights, updates), changed, optimizer_state), loss


training = weights, state, optimizer_state
losses, seconds = [], []
for batch in batches[:UNTIMED_STEPS]:
    training, loss = train_step(*training, *batch)
    losses.append(loss)
jax.block_until_ready(training)
if DEVICE == "cpu":
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        training, loss = train_step(*training, *batch)
        jax.block_until_ready((training, loss))
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    begin = time.perf_counter()
    for batch in batches[UNTIMED_STEPS:]:
        training, loss = train_step(*training, *batch)
        losses.append(loss)
    jax.block_until_ready((training, loss))
    seconds.append((time.perf_counter() - begin) / STEPS)

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
