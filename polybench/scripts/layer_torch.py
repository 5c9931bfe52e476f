"""Runs one operation of one layer in plain PyTorch: the operation that `polybench layers` times, without polybench.

    python THIS_FILE

#: if layer
Needs `layer.npz` in the same folder: the layer's weights, its input x, the gradient dy of its output, and the
expected result.
#: if lstm
Needs `layer.npz` in the same folder: the layer's weights, its input x (batch, time, features), the gradient dy of
its output, and the expected result (for the weight gradient, that of `weight`).
#: end
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
#: if layer
LAYER = nn.ReLU()
#: if lstm
BIDIRECTIONAL = True
SEQUENCE = False  # the outputs of all time steps, or the last one
NEEDS_INPUT_GRADIENT = True  # false for the first layer of a network
#: end

torch.set_num_threads(THREADS)
file = np.load(Path(__file__).with_name("layer.npz"))
arrays = {name: torch.from_numpy(file[name]) for name in file.files}
#: if layer
with torch.no_grad():
    for name, parameter in LAYER.named_parameters():
        parameter.copy_(arrays[name.rpartition(".")[2]])

x = arrays["x"].requires_grad_()
y, dy = LAYER(x), arrays["dy"]
inputs = [x] if OPERATION == "input gradient" else list(LAYER.parameters())


def operation() -> torch.Tensor:
    """Run the timed operation."""
    return LAYER(x) if OPERATION == "forward" else torch.autograd.grad(y, inputs, dy, retain_graph=True)[0]


#: if lstm
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


def operation() -> torch.Tensor:
    """Run the timed operation."""
    if OPERATION == "forward":
        return forward()
    return input_gradient() if OPERATION == "input gradient" else gradient(*weights, *[x] * NEEDS_INPUT_GRADIENT)


def input_gradient() -> torch.Tensor:
    """Run the backward pass without the weights."""
    return gradient(x)


#: end
error = (operation() - arrays["expected"]).norm() / arrays["expected"].norm()
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
    operation()
    seconds.append(perf_counter() - start)
#: if lstm
    # Both gradients need the backward pass through time, so the weight gradient is the time of both minus that
    # of the input gradient.
    if OPERATION == "weight gradient" and NEEDS_INPUT_GRADIENT:
        start = perf_counter()
        input_gradient()
        seconds[-1] -= perf_counter() - start
#: end
print(f"PyTorch {torch.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error.item():.1e}")
