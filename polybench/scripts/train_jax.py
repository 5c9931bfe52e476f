"""Train `lenet` on CIFAR-10 in plain JAX: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
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

from polybench.scripts.lenet_jax import network

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.01
MOMENTUM = 0.9
UNTIMED_STEPS = 2
STEPS = 58

os.environ["NPROC"] = str(THREADS)  # read at the first use of a device
jax.config.update("jax_default_matmul_precision", "tensorfloat32" if TF32 else "float32")
kind, _, number = DEVICE.partition(":")
device = jax.devices(kind)[int(number or 0)]

# The format of the official files: 1 byte label, then red, green and blue planes.
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
files = [np.fromfile(folder / f"data_batch_{file}.bin", np.uint8) for file in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    batches.append(jax.device_put((pixels, records[indices, 0].astype(np.int32)), device))

tensors = {name: start[name] for name in start.files if name != "batches"}
running = {name: tensors.pop(name) for name in start.files if ".running_" in name}
weights = jax.device_put(tensors, device, may_alias=False)
state = jax.device_put(running | {"key": jax.random.key(0)}, device, may_alias=False)
optimizer = optax.sgd(LEARNING_RATE, momentum=MOMENTUM)
optimizer_state = optimizer.init(weights)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(weights: Any, state: Any, optimizer_state: Any, images: jax.Array, labels: jax.Array) -> Any:
    """Run one step; return the new state and the loss before the update."""

    def loss_of(weights: Any) -> Any:
        logits, changed = network(weights, state, images)
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
