"""Train `imdb-bilstm` on tokens in plain PyTorch: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

initial_state.npz comes from `polybench weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs

from polybench.scripts.imdb_bilstm_torch import Network

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.001
UNTIMED_STEPS = 2
STEPS = 58

torch.set_num_threads(THREADS)
torch.set_num_interop_threads(THREADS)
torch.set_float32_matmul_precision("high" if TF32 else "highest")
torch.backends.cudnn.allow_tf32 = TF32

start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
tokens, labels = (np.load(folder / f"{name}.npy").astype(np.int64) for name in ("tokens", "labels"))
batches = [
    (torch.from_numpy(tokens[indices]).to(DEVICE), torch.from_numpy(labels[indices]).to(DEVICE))
    for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]

model = Network()
with torch.no_grad():
    for name, parameter in model.tensors():
        parameter.copy_(torch.from_numpy(start[name]))
model.to(DEVICE)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE)


def train_step(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Run one step; return the loss before the update."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens), labels)
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
