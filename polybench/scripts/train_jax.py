"""Train `lenet` in plain JAX: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

#: if images
initial_state.npz comes from `polybench export --weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
#: if tokens
initial_state.npz comes from `polybench export --weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
#: end
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
#: if lenet|dlframeworks-cnn|imdb-bilstm
import jax.numpy as jnp
#: end
import numpy as np
import optax
from jax import Array, lax

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.01
#: if images
MOMENTUM = 0.9
#: end
UNTIMED_STEPS = 2
STEPS = 58

os.environ["NPROC"] = str(THREADS)  # read at the first use of a device
jax.config.update("jax_default_matmul_precision", "tensorfloat32" if TF32 else "float32")
kind, _, number = DEVICE.partition(":")
device = jax.devices(kind)[int(number or 0)]


# The tensors have the names and layouts of initial_state.npz.
#: if lenet
def conv(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A convolution without padding, in the order of lax: channels first."""
    y = lax.conv_general_dilated(x, weights[f"{name}.weight"], (1, 1), "VALID")
    return y + weights[f"{name}.bias"][:, None, None]


#: if dlframeworks-cnn
def conv(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A convolution that keeps the image size, in the order of lax: channels first."""
    y = lax.conv_general_dilated(x, weights[f"{name}.weight"], (1, 1), "SAME")
    return y + weights[f"{name}.bias"][:, None, None]


#: if lenet|dlframeworks-cnn
def dense(weights: dict[str, Array], name: str, x: Array) -> Array:
    """A dense layer, its weight (out, in)."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def max_pool(x: Array) -> Array:
    """The maxima of windows of 2 x 2."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


#: if dlframeworks-cnn|imdb-bilstm
def dropout(rate: float, key: Array, x: Array) -> Array:
    """Zeros with this probability, and the rest scaled up."""
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0)


#: if lenet
def network(weights: dict[str, Array], state: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
    """The CNN of Flux's tutorial: logits (batch, 10) of images (batch, 3, 32, 32), and an unchanged state."""
    x = max_pool(jax.nn.relu(conv(weights, "conv1", x)))
    x = max_pool(jax.nn.relu(conv(weights, "conv2", x)))
    x = x.reshape(len(x), -1)
    for name in ("dense1", "dense2", "dense3"):
        x = dense(weights, name, x)
    return x, state


#: if dlframeworks-cnn
def network(weights: dict[str, Array], state: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
    """The CNN of the DeepLearningFrameworks comparison: logits (batch, 10), and the next step's state.

    Images are (batch, 3, 32, 32); the state has the `key` that dropout draws from.
    """
    key, *keys = jax.random.split(state["key"], 4)
    x = conv(weights, "conv2", jax.nn.relu(conv(weights, "conv1", x)))
    x = dropout(0.25, keys[0], jax.nn.relu(max_pool(x)))
    x = conv(weights, "conv4", jax.nn.relu(conv(weights, "conv3", x)))
    x = dropout(0.25, keys[1], jax.nn.relu(max_pool(x)))
    x = jax.nn.relu(dense(weights, "dense1", x.reshape(len(x), -1)))
    x = dropout(0.5, keys[2], x)
    return dense(weights, "dense2", x), state | {"key": key}


#: if resnet32
def conv(weights: dict[str, Array], name: str, x: Array, stride: int = 1) -> Array:
    """A convolution without bias, followed by batch norm; equal padding on all four sides."""
    weight = weights[f"{name}.weight"]
    pad = (weight.shape[-1] - 1) // 2
    return lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad), (pad, pad)])


def norm(weights: dict[str, Array], state: dict[str, Array], name: str, x: Array) -> Array:
    """Batch norm with explicit constants; its running statistics are replaced in `state`."""
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    n = x.size // x.shape[1]
    for part, value in {"mean": mean, "variance": variance * (n / (n - 1))}.items():
        state[f"{name}.running_{part}"] = 0.9 * state[f"{name}.running_{part}"] + 0.1 * value
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    mean, variance, weight, bias = (value[:, None, None] for value in (mean, variance, weight, bias))
    return weight * (x - mean) * lax.rsqrt(variance + 1e-5) + bias


def block(weights: dict[str, Array], state: dict[str, Array], name: str, x: Array) -> Array:
    """The basic residual block; where channels change, a 1x1 convolution brings the shortcut to the shape."""
    stride = 2 if f"{name}.projection.weight" in weights else 1
    y = conv(weights, f"{name}.conv1", x, stride)
    y = jax.nn.relu(norm(weights, state, f"{name}.norm1", y))
    y = norm(weights, state, f"{name}.norm2", conv(weights, f"{name}.conv2", y))
    if stride == 2:
        x = conv(weights, f"{name}.projection", x, stride)
    return jax.nn.relu(y + x)


def network(weights: dict[str, Array], state: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
    """The CIFAR-10 ResNet of 32 layers, post-activation: logits (batch, 10), and the next step's state.

    Images are (batch, 3, 32, 32); the state has batch norm's running statistics.
    """
    state = dict(state)
    x = jax.nn.relu(norm(weights, state, "norm1", conv(weights, "conv1", x)))
    for stage in range(1, 4):
        for number in range(1, 6):
            x = block(weights, state, f"stage{stage}.block{number}", x)
    return x.mean((2, 3)) @ weights["dense.weight"].T + weights["dense.bias"], state


#: if imdb-bilstm
def lstm(weights: dict[str, Array], name: str, x: Array) -> Array:
    """The last output (batch, units) of an LSTM over x (batch, time, features); gates: i, f, g, o."""
    recurrent = weights[f"{name}recurrent"].T
    inputs = x @ weights[f"{name}weight"].T + weights[f"{name}bias"]

    def moment(carry: tuple[Array, Array], rows: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, g, o = jnp.split(rows + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), len(recurrent)), x.dtype)
    _, outputs = lax.scan(moment, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs[-1]


def network(weights: dict[str, Array], state: dict[str, Array], tokens: Array) -> tuple[Array, dict[str, Array]]:
    """The IMDb example of Keras 2: logits (batch, 2) of tokens (batch, time), and the next step's state."""
    key, drawn = jax.random.split(state["key"])
    x = weights["embedding.weight"][tokens]
    x = jnp.concatenate([lstm(weights, "lstm.", x), lstm(weights, "lstm.reverse_", x[:, ::-1])], axis=-1)
    x = dropout(0.5, drawn, x)
    return x @ weights["dense.weight"].T + weights["dense.bias"], {"key": key}


#: end
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
#: if images
# The format of the official files: 1 byte label, then red, green and blue planes.
files = [np.fromfile(folder / f"data_batch_{file}.bin", np.uint8) for file in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    batches.append(jax.device_put((pixels, records[indices, 0].astype(np.int32)), device))
#: if tokens
tokens, labels = (np.load(folder / f"{name}.npy").astype(np.int32) for name in ("tokens", "labels"))
batches = [
    jax.device_put((tokens[indices], labels[indices]), device) for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]
#: end

tensors = {name: start[name] for name in start.files if name != "batches"}
running = {name: tensors.pop(name) for name in start.files if ".running_" in name}  # of batch norm
weights = jax.device_put(tensors, device, may_alias=False)
state = jax.device_put(running | {"key": jax.random.key(0)}, device, may_alias=False)
#: if images
optimizer = optax.sgd(LEARNING_RATE, momentum=MOMENTUM)
#: if tokens
optimizer = optax.adam(LEARNING_RATE)
#: end
optimizer_state = optimizer.init(weights)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(weights: Any, state: Any, optimizer_state: Any, inputs: Array, labels: Array) -> Any:
    """Run one step; return the new state and the loss before the update."""

    def loss_of(weights: Any) -> Any:
        logits, changed = network(weights, state, inputs)
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
