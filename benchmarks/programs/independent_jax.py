"""Three CIFAR-10 networks in JAX on random images, written without a look at polybench or its scripts.

    python independent_jax.py lenet|dlframeworks-cnn|resnet32 BATCH_SIZE THREADS STEPS

Trains STEPS steps for each line on standard input, and prints their median time as JSON.
"""

import functools
import itertools
import json
import os
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, nn, random

he = nn.initializers.he_normal(in_axis=1, out_axis=0)


def init_conv(key, inputs, outputs, size, bias=True):
    kernel = he(key, (outputs, inputs, size, size))
    return {"kernel": kernel, "bias": jnp.zeros((outputs, 1, 1))} if bias else {"kernel": kernel}


def init_linear(key, inputs, outputs):
    return {"kernel": nn.initializers.lecun_normal()(key, (inputs, outputs)), "bias": jnp.zeros(outputs)}


def init_norm(channels):
    params = {"scale": jnp.ones((channels, 1, 1)), "offset": jnp.zeros((channels, 1, 1))}
    return params, {"mean": jnp.zeros((channels, 1, 1)), "var": jnp.ones((channels, 1, 1))}


def conv(p, x, stride=1, pad=0):
    y = lax.conv_general_dilated(x, p["kernel"], (stride, stride), ((pad, pad), (pad, pad)))
    return y + p["bias"] if "bias" in p else y


def linear(p, x):
    return jnp.dot(x, p["kernel"]) + p["bias"]


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def drop(key, rate, x):
    keep = 1 - rate
    return x * random.bernoulli(key, keep, x.shape) / keep


def norm(p, stats, x):
    mean = jnp.mean(x, (0, 2, 3), keepdims=True)
    var = jnp.var(x, (0, 2, 3), keepdims=True)
    count = x.size / x.shape[1]
    new = {"mean": 0.9 * stats["mean"] + 0.1 * mean[0], "var": 0.9 * stats["var"] + 0.1 * var[0] * count / (count - 1)}
    return (x - mean) / jnp.sqrt(var + 1e-5) * p["scale"] + p["offset"], new


def init_lenet(key):
    k = random.split(key, 5)
    params = {
        "c1": init_conv(k[0], 3, 16, 5),
        "c2": init_conv(k[1], 16, 8, 5),
        "l1": init_linear(k[2], 200, 120),
        "l2": init_linear(k[3], 120, 84),
        "l3": init_linear(k[4], 84, 10),
    }
    return params, {}


def lenet(p, stats, x, _key):
    x = pool(nn.relu(conv(p["c1"], x)))
    x = pool(nn.relu(conv(p["c2"], x)))
    x = x.reshape(x.shape[0], -1)
    return linear(p["l3"], linear(p["l2"], linear(p["l1"], x))), stats


def init_dlframeworks_cnn(key):
    k = random.split(key, 6)
    params = {
        "c1": init_conv(k[0], 3, 50, 3),
        "c2": init_conv(k[1], 50, 50, 3),
        "c3": init_conv(k[2], 50, 100, 3),
        "c4": init_conv(k[3], 100, 100, 3),
        "l1": init_linear(k[4], 6400, 512),
        "l2": init_linear(k[5], 512, 10),
    }
    return params, {}


def dlframeworks_cnn(p, stats, x, key):
    k1, k2, k3 = random.split(key, 3)
    x = nn.relu(conv(p["c1"], x, pad=1))
    x = drop(k1, 0.25, nn.relu(pool(conv(p["c2"], x, pad=1))))
    x = nn.relu(conv(p["c3"], x, pad=1))
    x = drop(k2, 0.25, nn.relu(pool(conv(p["c4"], x, pad=1))))
    x = drop(k3, 0.5, nn.relu(linear(p["l1"], x.reshape(x.shape[0], -1))))
    return linear(p["l2"], x), stats


def init_block(key, inputs, planes):
    k = random.split(key, 3)
    norm1, stats1 = init_norm(planes)
    norm2, stats2 = init_norm(planes)
    params = {
        "c1": init_conv(k[0], inputs, planes, 3, bias=False),
        "n1": norm1,
        "c2": init_conv(k[1], planes, planes, 3, bias=False),
        "n2": norm2,
    }
    if inputs != planes:
        params["down"] = init_conv(k[2], inputs, planes, 1, bias=False)
    return params, {"n1": stats1, "n2": stats2}


def basic_block(p, stats, x):
    stride = 2 if "down" in p else 1
    y, new1 = norm(p["n1"], stats["n1"], conv(p["c1"], x, stride, 1))
    y, new2 = norm(p["n2"], stats["n2"], conv(p["c2"], nn.relu(y), 1, 1))
    shortcut = conv(p["down"], x, stride) if "down" in p else x
    return nn.relu(y + shortcut), {"n1": new1, "n2": new2}


def init_resnet32(key):
    keys = iter(random.split(key, 17))
    stem, stem_stats = init_norm(16)
    widths = [16, *[16] * 5, *[32] * 5, *[64] * 5]
    blocks = [init_block(next(keys), inputs, planes) for inputs, planes in itertools.pairwise(widths)]
    params = {
        "stem": init_conv(next(keys), 3, 16, 3, bias=False),
        "norm": stem,
        "blocks": [one for one, _ in blocks],
        "head": init_linear(next(keys), 64, 10),
    }
    return params, {"norm": stem_stats, "blocks": [one for _, one in blocks]}


def resnet32(p, stats, x, _key):
    x, new = norm(p["norm"], stats["norm"], conv(p["stem"], x, 1, 1))
    x, blocks = nn.relu(x), []
    for block, block_stats in zip(p["blocks"], stats["blocks"], strict=True):
        x, changed = basic_block(block, block_stats, x)
        blocks.append(changed)
    return linear(p["head"], jnp.mean(x, (2, 3))), {"norm": new, "blocks": blocks}


NETWORKS = {
    "lenet": (init_lenet, lenet),
    "dlframeworks-cnn": (init_dlframeworks_cnn, dlframeworks_cnn),
    "resnet32": (init_resnet32, resnet32),
}


def make_step(apply, optimizer):
    """Make the compiled step, which takes over the memory of its first four arguments."""

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
    def step(params, stats, slots, key, images, labels):
        key, drawn = random.split(key)

        def objective(params):
            logits, new = apply(params, stats, images, drawn)
            return -jnp.mean(nn.log_softmax(logits)[jnp.arange(labels.size), labels]), new

        (loss, new), grads = jax.value_and_grad(objective, has_aux=True)(params)
        updates, slots = optimizer.update(grads, slots, params)
        return optax.apply_updates(params, updates), new, slots, key, loss

    return step


def main():
    init, apply = NETWORKS[sys.argv[1]]
    batch_size, threads, steps = map(int, sys.argv[2:])
    os.environ["NPROC"] = str(threads)  # of XLA's pool, which the first array starts
    params, stats = init(random.key(0))
    optimizer = optax.sgd(0.01, momentum=0.9)
    training = params, stats, optimizer.init(params), random.key(1)
    step, rng = make_step(apply, optimizer), np.random.default_rng(0)
    data = []
    for _ in range(steps):
        images, labels = rng.random((batch_size, 3, 32, 32), np.float32), rng.integers(10, size=batch_size)
        data.append(jax.device_put((images, labels.astype(np.int32))))
    for _ in sys.stdin:
        times = []
        for images, labels in data:
            start = time.perf_counter()
            *training, loss = step(*training, images, labels)
            jax.block_until_ready((training, loss))
            times.append(time.perf_counter() - start)
        print(json.dumps({"median_step_seconds": statistics.median(times), "loss": float(loss)}), flush=True)


if __name__ == "__main__":
    main()
