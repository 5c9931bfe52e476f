"""Networks for tests only."""

import msgspec

from polybench.networks.layers import (
    GELU,
    LSTM,
    Attention,
    AveragePool,
    BatchNorm,
    ClassToken,
    Conv,
    Dense,
    Dropout,
    Embedding,
    FirstPosition,
    Flatten,
    GlobalAveragePool,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    MeanOverTime,
    Patches,
    Positions,
    ReLU,
    ReLU6,
    Residual,
    SiLU,
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
        Residual((AveragePool(3, 1, 1, count_padding=False), Conv("same", 5, 5, 3, padding=1)), ()),
        MaxPool(3, 2, ((0, 1), (1, 1))),
        Conv("asymmetric", 5, 5, 2, padding=((0, 1), (1, 0))),
        AveragePool(2, 1, ((1, 0), (0, 0))),
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


# Every kind of padding, also where a framework has no layer for it.
PADDED = Model(
    name="padded",
    summary="",
    input_shape=(3, 10, 9),
    classes=3,
    layers=(
        Conv("strided", 3, 4, 3, 2, ((0, 1), (1, 1))),
        ReLU(),
        Conv("grouped", 4, 4, 3, 1, ((2, 0), (0, 2)), groups=2),
        Conv("depthwise", 4, 4, 2, 1, ((0, 1), (1, 0)), groups=4),
        MaxPool(3, 1, "same"),
        MaxPool(2, 1, ((1, 0), (0, 1))),
        MaxPool(2, 1, ((0, 1), (0, 1))),
        AveragePool(3, 1, 1),
        AveragePool(3, 1, 1, count_padding=False),
        AveragePool(2, 1, ((1, 0), (0, 1))),
        AveragePool(2, 1, ((1, 0), (0, 1)), count_padding=False),
        AveragePool(2, 1, ((0, 1), (0, 1)), count_padding=False),
        GlobalAveragePool(),
        Dense("dense", 4, 3),
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


TEXT = Model(
    name="text",
    summary="",
    input_shape=(7,),
    classes=11,
    layers=(
        Embedding("embedding", 11, 8),
        Positions("positions", 9, 8),
        Residual((LayerNorm("norm1", 8, bias=False), Attention("attention", 8, 2, causal=True, bias=False))),
        Dropout("dropout", 0.25),
        Residual(
            (
                LayerNorm("norm2", 8, epsilon=1e-3),
                Dense("wide", 8, 12, bias=False),
                GELU(),
                Dense("narrow", 12, 8, bias=False),
            )
        ),
        Residual((Attention("biased", 8, 4, causal=True),)),
        LayerNorm("norm3", 8),
        Dense("head", 8, 11, bias=False, tied="embedding"),
    ),
    batch_size=4,
    optimizer=Optimizer(),
    parity_batch_size=4,
)
"""A decoder with every layer and option for text: a prediction at each position, and a head tied to the embedding."""

PATCHED = Model(
    name="patched",
    summary="",
    input_shape=(3, 9, 6),
    classes=3,
    layers=(
        Conv("grouped", 3, 6, 3, padding="same", groups=3),
        GroupNorm("norm1", 6, 2, epsilon=1e-3),
        SiLU(),
        Conv("depthwise", 6, 6, 3, padding=1, bias=False, groups=6),
        GroupNorm("norm2", 6, 3),
        ReLU6(),
        Residual((Conv("expand", 6, 12, 1, groups=2), GELU("tanh"), Conv("project", 12, 6, 1)), ()),
        Patches("patches", 6, 8, 3),
        ClassToken("class_token", 8),
        Positions("positions", 7, 8),
        Residual((LayerNorm("norm3", 8), Attention("attention", 8, 2))),
        Residual((Dense("hidden", 8, 8), GELU(), Dense("again", 8, 8, bias=False, tied="hidden"))),
        FirstPosition(),
        LayerNorm("norm4", 8),
        Dense("head", 8, 3),
    ),
    batch_size=4,
    optimizer=Optimizer("adamw", 0.001, weight_decay=0.05, gradient_clip=1.0, warmup_steps=2, cosine_steps=9),
    parity_batch_size=4,
    label_smoothing=0.1,
)
"""Every layer and option of mobile networks and vision transformers."""


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
