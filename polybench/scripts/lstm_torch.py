"""Runs one operation of an LSTM in plain PyTorch: the operation that `polybench layers` times, without polybench.

    python THIS_FILE

Needs `layer.npz` in the same folder: the layer's weights, its input x (batch, time, features), the gradient dy of
its output, and the expected result (for the weight gradient, that of `weight`).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

OPERATION = "forward"  # "input gradient", "weight gradient"
THREADS = 2
REPEATS = 100
BIDIRECTIONAL = True
SEQUENCE = False  # the outputs of all time steps, or the last one
NEEDS_INPUT_GRADIENT = True  # false for the first layer of a network

torch.set_num_threads(THREADS)
file = np.load(Path(__file__).with_name("layer.npz"))
arrays = {name: torch.from_numpy(file[name]) for name in file.files}
x, dy = arrays["x"].requires_grad_(NEEDS_INPUT_GRADIENT), arrays["dy"]
layer = nn.LSTM(x.shape[2], arrays["recurrent"].shape[1], batch_first=True, bidirectional=BIDIRECTIONAL)
theirs = {"weight": "weight_ih", "recurrent": "weight_hh", "bias": "bias_ih", "recurrent_bias": "bias_hh"}
with torch.no_grad():
    for way, suffix in (("", "_l0"), ("reverse_", "_l0_reverse"))[: 1 + BIDIRECTIONAL]:
        for name, attribute in theirs.items():
            parameter = getattr(layer, attribute + suffix)
            if way + name in arrays:
                parameter.copy_(arrays[way + name])
            else:  # Keras and Flux have one bias
                parameter.zero_().requires_grad_(False)


def forward() -> torch.Tensor:
    """The output of the layer."""
    outputs, (last, _) = layer(x)
    return outputs if SEQUENCE else torch.cat(tuple(last), dim=1)


y = forward()
weights = [parameter for parameter in layer.parameters() if parameter.requires_grad]


def gradient(*inputs: torch.Tensor) -> torch.Tensor:
    """Those of all inputs are computed; the first."""
    return torch.autograd.grad(y, inputs, dy, retain_graph=True)[0]


operations: dict[str, Callable[[], torch.Tensor]] = {
    "forward": forward,
    "input gradient": partial(gradient, x),
    "weight gradient": partial(gradient, *weights, *[x] * NEEDS_INPUT_GRADIENT),
}
# Both gradients need the backward pass through time, so the weight gradient is the time of both minus that
# of the input gradient.
less = operations["input gradient"] if OPERATION == "weight gradient" and NEEDS_INPUT_GRADIENT else None

error = (operations[OPERATION]() - arrays["expected"]).norm() / arrays["expected"].norm()
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
    operations[OPERATION]()
    took = perf_counter() - start
    if less:
        start = perf_counter()
        less()
        took -= perf_counter() - start
    seconds.append(took)
print(f"PyTorch {torch.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error.item():.1e}")
