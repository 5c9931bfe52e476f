"""Networks for tests only."""

import msgspec

from polybench.networks.layers import (
    LSTM,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    MaxPool,
    MeanOverTime,
    ReLU,
    Residual,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.resnet32 import BLOCKS, CHANNELS, RESNET32

# Every layer and option for images, in a network small enough for finite differences.
EVERYTHING = Model(
    name="everything",
    summary="",
    input_shape=(3, 9, 8),
    classes=3,
    layers=(
        Conv("conv1", 3, 4, 3, padding="same", bias=False),
        BatchNorm("norm1", 4, epsilon=1e-3, momentum=0.3),
        ReLU(),
        Residual(
            (
                Conv("block.conv1", 4, 5, 3, stride=2, padding=1, bias=False),
                BatchNorm("block.norm1", 5),
                ReLU(),
                Residual((Conv("block.inner.conv", 5, 5, 1),)),
            ),
            (Conv("block.projection", 4, 5, 1, stride=2, bias=False),),
        ),
        MaxPool(2, 1),
        Dropout("dropout1", 0.25),
        Residual((AveragePool(1), Conv("same", 5, 5, 3, padding=1)), ()),
        AveragePool(2),
        Flatten(),
        Dense("dense1", 10, 6),
        BatchNorm("norm2", 6),
        Dropout("dropout2", 0.5),
        Dense("dense2", 6, 3),
    ),
    batch_size=4,
    optimizer=Optimizer(),
    parity_batch_size=4,
)


BIASED = Model(
    name="biased",
    summary="",
    input_shape=(3, 6, 6),
    classes=3,
    layers=(
        Conv("conv", 3, 4, 3),
        BatchNorm("norm1", 4),
        ReLU(),
        Flatten(),
        Dense("dense1", 64, 6),
        BatchNorm("norm2", 6),
        ReLU(),
        Dense("dense2", 6, 3),
    ),
    batch_size=8,
    optimizer=Optimizer("adam", 0.001),
    parity_batch_size=8,
)
"""Batch norm cancels the biases before it: their gradient is zero up to rounding."""

DROPOUTS = msgspec.structs.replace(
    EVERYTHING,
    name="dropouts",
    optimizer=Optimizer("adam", 0.001, weight_decay=0.1, lr_schedule=((1, 0.0005), (4, 0.0001))),
    layers=(
        BatchNorm("norm1", 3),
        Dropout("dropout1", 0.25),
        Flatten(),
        Dense("dense1", 216, 6),
        Dropout("dropout2", 0.5),
        Dense("dense2", 6, 3),
    ),
)
"""A network with state besides weights that compiles quickly."""

# Every layer for sequences that all engines support, with both outputs, of one direction and of both.
SEQUENCES = Model(
    name="sequences",
    summary="",
    input_shape=(7,),
    classes=3,
    layers=(
        Embedding("embedding", 11, 4),
        LSTM("both", 4, 3, bidirectional=True, sequence=True),
        Dropout("dropout", 0.25),
        LSTM("one", 6, 5, sequence=True),
        Residual(
            (Residual((LSTM("both_last", 5, 3, bidirectional=True),), (LSTM("one_last", 5, 6),)),),
            (MeanOverTime(), Dense("mean", 5, 6)),
        ),
        Dense("dense", 6, 3),
    ),
    batch_size=4,
    optimizer=Optimizer(),
    parity_batch_size=4,
)

FEATURES = Model(
    name="features",
    summary="",
    input_shape=(5, 4),
    classes=4,
    layers=(
        LSTM("lstm", 4, 6, bidirectional=True, recurrent_activation="hard_sigmoid", biases=2),
        Dense("dense", 12, 4),
    ),
    batch_size=4,
    optimizer=Optimizer(),
    parity_batch_size=4,
)
"""Features instead of tokens, and the LSTM options that some engines lack."""


def _shallow(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The first block of each stage of a ResNet, which may change the shape."""
    first = next(index for index, layer in enumerate(layers) if isinstance(layer, Residual))
    end = first + 2 * BLOCKS * len(CHANNELS)  # a block and its ReLU
    starts = range(first, end, 2 * BLOCKS)
    return (*layers[:first], *(layer for at in starts for layer in layers[at : at + 2]), *layers[end:])


RESNET8 = msgspec.structs.replace(
    RESNET32, name="resnet8", summary="", layers=_shallow(RESNET32.layers), published_parameters=None
)
"""`resnet32` with one block per stage, for engines that compile each layer."""
