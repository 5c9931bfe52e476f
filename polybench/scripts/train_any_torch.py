"""Train `lenet` in plain PyTorch: the training that polybench times, without polybench.

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
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs
from torch import nn

DEVICE = "cpu"
THREADS = 2
TF32 = False
COMPILE = False
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

torch.set_num_threads(THREADS)
torch.set_num_interop_threads(THREADS)
torch.set_float32_matmul_precision("high" if TF32 else "highest")
torch.backends.cudnn.allow_tf32 = TF32
torch.backends.cudnn.benchmark = True


# <network>

start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
#: if images
# The format of the official files: 1 byte label, then the planes of an image.
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 1 + math.prod(SHAPE))
inputs, labels = records[:, 1:].reshape(-1, *SHAPE).astype(np.float32) / 255, records[:, 0].astype(np.int64)
#: if tokens
inputs, labels = (np.load(folder / f"{name}.npy").astype(np.int64) for name in ("tokens", "labels"))
#: end
batches = [
    (torch.from_numpy(inputs[indices]).to(DEVICE), torch.from_numpy(labels[indices]).to(DEVICE))
    for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]

network.to(DEVICE).train()
trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
#: if sgd
optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
#: if momentum
optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
#: if nesterov
optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True)
#: if adam
optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
#: if adamw
groups = [  # biases, weights of norms and class tokens do not decay
    {"params": [parameter for parameter in trained if parameter.ndim > 1]},
    {"params": [parameter for parameter in trained if parameter.ndim == 1], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
#: if cosine


def learning_rate(step: int) -> float:
    """A warm-up, then half a cosine."""
    if step < WARMUP_STEPS:
        return LEARNING_RATE * (step + 1) / (WARMUP_STEPS + 1)
    progress = min(1.0, (step - WARMUP_STEPS) / (COSINE_STEPS - WARMUP_STEPS))
    return MIN_LEARNING_RATE + (1 + math.cos(math.pi * progress)) / 2 * (LEARNING_RATE - MIN_LEARNING_RATE)
#: end


def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of a batch, over all positions of a text."""
    return F.cross_entropy(network(inputs).flatten(0, -2), labels.flatten(), label_smoothing=LABEL_SMOOTHING)


if COMPILE:
    loss_of = torch.compile(loss_of, dynamic=False)


def train_step(step: int) -> torch.Tensor:
    """Run one step; return the loss before the update."""
#: if cosine
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
#: end
    optimizer.zero_grad()
    loss = loss_of(*batches[step])
    loss.backward()
#: if clip
    nn.utils.clip_grad_norm_(trained, GRADIENT_CLIP)
#: end
    optimizer.step()
    return loss.detach()


losses = [train_step(step) for step in range(UNTIMED_STEPS)]
seconds = []
timed = range(UNTIMED_STEPS, UNTIMED_STEPS + STEPS)
if DEVICE == "cpu":
    for step in timed:
        begin = time.perf_counter()
        loss = train_step(step)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    torch.cuda.synchronize(DEVICE)
    begin = time.perf_counter()
    losses += [train_step(step) for step in timed]
    torch.cuda.synchronize(DEVICE)
    seconds.append((time.perf_counter() - begin) / STEPS)

print(json.dumps({"step_seconds": seconds, "losses": [loss.item() for loss in losses]}))
