"""Train `lenet` on CIFAR-10 in plain PyTorch: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs

from polybench.scripts.lenet_torch import Network

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.01
MOMENTUM = 0.9
CHANNELS_LAST = False
COMPILE = False
FOREACH = False
UNTIMED_STEPS = 2
STEPS = 58

torch.set_num_threads(THREADS)
torch.set_num_interop_threads(THREADS)
torch.set_float32_matmul_precision("high" if TF32 else "highest")
torch.backends.cudnn.allow_tf32 = TF32
torch.backends.cudnn.benchmark = True
memory_format = torch.channels_last if CHANNELS_LAST else torch.contiguous_format

# The format of the official files: 1 byte label, then red, green and blue planes.
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    images = torch.from_numpy(pixels).to(DEVICE, memory_format=memory_format)
    batches.append((images, torch.from_numpy(records[indices, 0].astype(np.int64)).to(DEVICE)))

model = Network()
with torch.no_grad():  # batch norm's statistics start at 0 and 1, as in initial_state.npz
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(start[name]))
model.to(DEVICE, memory_format=memory_format)
optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, foreach=FOREACH or None)


def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of a batch."""
    return F.cross_entropy(model(images), labels)


if COMPILE:
    loss_of = torch.compile(loss_of, dynamic=False)


def train_step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Run one step; return the loss before the update."""
    optimizer.zero_grad()
    loss = loss_of(images, labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
if DEVICE == "cpu":
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        loss = train_step(*batch)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    torch.cuda.synchronize(DEVICE)
    begin = time.perf_counter()
    losses += [train_step(*batch) for batch in batches[UNTIMED_STEPS:]]
    torch.cuda.synchronize(DEVICE)
    seconds.append((time.perf_counter() - begin) / STEPS)

print(json.dumps({"step_seconds": seconds, "losses": [loss.item() for loss in losses]}))
