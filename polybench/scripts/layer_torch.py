"""Runs one operation of one layer in plain PyTorch: the operation that `polybench layers` times, without polybench.

    python THIS_FILE

Needs `layer.npz` in the same folder: the layer's weights, its input x, the gradient dy of its output, and the
expected result.
"""

from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

OPERATION = "forward"  # "input gradient", "weight gradient"
THREADS = 2
REPEATS = 100
LAYER = nn.ReLU()

torch.set_num_threads(THREADS)
file = np.load(Path(__file__).with_name("layer.npz"))
arrays = {name: torch.from_numpy(file[name]) for name in file.files}
with torch.no_grad():
    for name, parameter in LAYER.named_parameters():
        parameter.copy_(arrays[name.rpartition(".")[2]])

x = arrays["x"].requires_grad_()
y, dy = LAYER(x), arrays["dy"]
inputs = [x] if OPERATION == "input gradient" else list(LAYER.parameters())


def operation() -> torch.Tensor:
    """Run the timed operation."""
    return LAYER(x) if OPERATION == "forward" else torch.autograd.grad(y, inputs, dy, retain_graph=True)[0]


error = (operation() - arrays["expected"]).norm() / arrays["expected"].norm()
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
    operation()
    seconds.append(perf_counter() - start)
print(f"PyTorch {torch.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error.item():.1e}")
