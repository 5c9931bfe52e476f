"""A small VGG for images of 256 x 256, 58,091,396 values, of which 58,088,516 are trained.

Source: "TensorFlow 2 - CPU vs GPU Performance Comparison", 2019; batch norm with Keras's own constants.
Its optimizer is not published; plain gradient descent is ours.
"""

from polybench.core.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Layer, MaxPool, ReLU
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer


def _norm(name: str, channels: int) -> BatchNorm:
    return BatchNorm(name, channels, epsilon=1e-3, momentum=0.01)


def _conv(number: int, inputs: int, outputs: int) -> tuple[Layer, ...]:
    conv = Conv(f"conv{number}", inputs, outputs, kernel=3, padding="same")
    return conv, ReLU(), _norm(f"norm{number}", outputs)


SMALLVGG = Model(
    name="smallvgg",
    summary="a small VGG for images of 256 x 256: 5 convolutions, 2 dense layers, batch norm, dropout",
    input_shape=(3, 256, 256),
    classes=4,
    layers=(
        *_conv(1, 3, 32),
        MaxPool(3),
        Dropout("dropout1", 0.25),
        *_conv(2, 32, 64),
        *_conv(3, 64, 64),
        MaxPool(2),
        Dropout("dropout2", 0.25),
        *_conv(4, 64, 128),
        *_conv(5, 128, 128),
        MaxPool(2),
        Dropout("dropout3", 0.25),
        Flatten(),
        Dense("dense1", 56_448, 1024),
        ReLU(),
        _norm("norm6", 1024),
        Dropout("dropout4", 0.5),
        Dense("dense2", 1024, 4),
    ),
    batch_size=64,
    optimizer=Optimizer("sgd", learning_rate=0.01),
    parity_batch_size=4,
)
