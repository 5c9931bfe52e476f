"""One part of an LSTM in PyTorch, by hand: what `polybench layers` times, and nothing of polybench.

    python THIS_FILE

Needs `layer.npz` beside it: the layer's weights, its input x (batch, time, features), the gradient dy of its
output, and what is expected: of the weights' gradients that of `weight`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

PART = "forward"  # "data gradient", "weight gradient"
THREADS = 2
REPEATS = 100
BIDIRECTIONAL = True
SEQUENCE = False  # the output of each time, or the last one
WANTS_DATA_GRADIENT = True  # not of a network's first layer

torch.set_num_threads(THREADS)
file = np.load(Path(__file__).with_name("layer.npz"))
arrays = {name: torch.from_numpy(file[name]) for name in file.files}
x, dy = arrays["x"].requires_grad_(WANTS_DATA_GRADIENT), arrays["dy"]
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


parts: dict[str, Callable[[], torch.Tensor]] = {
    "forward": forward,
    "data gradient": partial(gradient, x),
    "weight gradient": partial(gradient, *weights, *[x] * WANTS_DATA_GRADIENT),
}
# Both gradients need the way back through time, so the weights' is what both take beyond the data's.
less = parts["data gradient"] if PART == "weight gradient" and WANTS_DATA_GRADIENT else None

error = (parts[PART]() - arrays["expected"]).norm() / arrays["expected"].norm()
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
    parts[PART]()
    took = perf_counter() - start
    if less:
        start = perf_counter()
        less()
        took -= perf_counter() - start
    seconds.append(took)
print(f"PyTorch {torch.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error.item():.1e}")
