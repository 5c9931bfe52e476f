"""Train `lenet` in plain JAX: the training that polybench times, without polybench.

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
#: if images
import math
#: end
import os
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax  # noqa: F401 - some networks do not need it

DEVICE = "cpu"
THREADS = 2
TF32 = False
#: if images
SHAPE = (3, 32, 32)
#: end
LEARNING_RATE = 0.01
#: if cosine
WARMUP_STEPS = 0
COSINE_STEPS = 1000
MIN_LEARNING_RATE = 0.0
#: if velocity
MOMENTUM = 0.9
#: if betas
BETAS = (0.9, 0.999)
#: end
WEIGHT_DECAY = 0.0
#: if clip
GRADIENT_CLIP = 1.0
#: end
LABEL_SMOOTHING = 0.0
UNTIMED_STEPS = 2
STEPS = 58

os.environ["NPROC"] = str(THREADS)  # read at the first use of a device
jax.config.update("jax_default_matmul_precision", "tensorfloat32" if TF32 else "float32")
kind, _, number = DEVICE.partition(":")
device = jax.devices(kind)[int(number or 0)]


# <network>

start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
#: if images
# The format of the official files: 1 byte label, then the planes of an image.
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 1 + math.prod(SHAPE))
inputs, labels = records[:, 1:].reshape(-1, *SHAPE).astype(np.float32) / 255, records[:, 0].astype(np.int32)
#: if tokens
inputs, labels = (np.load(folder / f"{name}.npy").astype(np.int32) for name in ("tokens", "labels"))
#: end
batches = [
    jax.device_put((inputs[indices], labels[indices]), device) for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]

running = {name: weights.pop(name) for name in list(weights) if ".running_" in name}  # of batch norm
weights, running, key = jax.device_put((weights, running, jax.random.key(0)), device, may_alias=False)
rate = LEARNING_RATE
#: if cosine
rate = optax.warmup_cosine_decay_schedule(
    LEARNING_RATE / (WARMUP_STEPS + 1), LEARNING_RATE, WARMUP_STEPS, COSINE_STEPS, MIN_LEARNING_RATE
)
#: if sgd
rule = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate))
#: if momentum
rule = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, MOMENTUM))
#: if nesterov
rule = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, MOMENTUM, nesterov=True))
#: if adam
rule = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.adam(rate, *BETAS))
#: if adamw
matrices = {name: weight.ndim > 1 for name, weight in weights.items()}  # biases and weights of norms do not decay
rule = optax.adamw(rate, *BETAS, weight_decay=WEIGHT_DECAY, mask=matrices)
#: end
optimizer = rule
#: if clip
optimizer = optax.chain(optax.clip_by_global_norm(GRADIENT_CLIP), rule)
#: end


@partial(jax.jit, donate_argnums=0)
def train_step(state, inputs, labels):
    """Run one step; return the new state and the loss before the update."""
    weights, running, optimizer_state, key = state
    key, drawn = jax.random.split(key)

    def loss_of(weights):
        logits, changed = network(weights | running, inputs, drawn)
        targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), LABEL_SMOOTHING)
        return optax.softmax_cross_entropy(logits, targets).mean(), changed

    (loss, changed), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, weights)
    return (optax.apply_updates(weights, updates), changed, optimizer_state, key), loss


state = weights, running, optimizer.init(weights), key
losses, seconds = [], []
for batch in batches[:UNTIMED_STEPS]:
    state, loss = train_step(state, *batch)
    losses.append(loss)
jax.block_until_ready(state)
if DEVICE == "cpu":
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        state, loss = train_step(state, *batch)
        jax.block_until_ready((state, loss))
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    begin = time.perf_counter()
    for batch in batches[UNTIMED_STEPS:]:
        state, loss = train_step(state, *batch)
        losses.append(loss)
    jax.block_until_ready((state, loss))
    seconds.append((time.perf_counter() - begin) / STEPS)

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
