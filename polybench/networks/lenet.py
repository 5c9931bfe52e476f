"""The network of the Flux tutorial, without activations between the dense layers.

Source: "GPU vs CPU benchmarks with Flux.jl", 2021, after the Flux tutorial of 2020.
"""

from polybench.networks.layers import Conv, Dense, Flatten, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

LENET = Model(
    name="lenet",
    summary="the Flux tutorial's network: 2 convolutions, 3 dense layers",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        Conv("conv1", 3, 16, kernel=5),
        ReLU(),
        MaxPool(2),
        Conv("conv2", 16, 8, kernel=5),
        ReLU(),
        MaxPool(2),
        Flatten(),
        Dense("dense1", 200, 120),
        Dense("dense2", 120, 84),
        Dense("dense3", 84, 10),
    ),
    batch_size=128,
    optimizer=Optimizer("momentum", learning_rate=0.01, momentum=0.9),
    parity_batch_size=128,
    published_parameters=39_558,
)
