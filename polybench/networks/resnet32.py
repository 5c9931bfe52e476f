"""ResNet-32 for CIFAR-10: post-activation (v1), without bias in convolutions.

If the shape changes, the shortcut is a 1x1 convolution without batch norm.
Source: He et al., 2015, section 4.2 (https://arxiv.org/abs/1512.03385), with the projection of TensorFlow's
official model; measured in "TensorFlow Performance by GPU and TPU", 2018.
"""

from collections.abc import Iterator

from polybench.networks.layers import BatchNorm, Conv, Dense, GlobalAveragePool, Layer, ReLU, Residual
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

BLOCKS = 5
CHANNELS = (16, 32, 64)


def _conv(name: str, inputs: int, outputs: int, stride: int = 1) -> Conv:
    return Conv(name, inputs, outputs, kernel=3, stride=stride, padding=1, bias=False)


def _block(name: str, inputs: int, outputs: int) -> tuple[Layer, ...]:
    """Build a basic block; a block that changes the number of channels also halves height and width."""
    stride = 1 if inputs == outputs else 2
    body = (
        _conv(f"{name}.conv1", inputs, outputs, stride),
        BatchNorm(f"{name}.norm1", outputs),
        ReLU(),
        _conv(f"{name}.conv2", outputs, outputs),
        BatchNorm(f"{name}.norm2", outputs),
    )
    projection = Conv(f"{name}.projection", inputs, outputs, kernel=1, stride=stride, bias=False)
    return Residual(body, () if stride == 1 else (projection,)), ReLU()


def _stages() -> Iterator[Layer]:
    inputs = CHANNELS[0]
    for stage, channels in enumerate(CHANNELS, 1):
        for block in range(1, BLOCKS + 1):
            yield from _block(f"stage{stage}.block{block}", inputs, channels)
            inputs = channels


RESNET32 = Model(
    name="resnet32",
    summary="the CIFAR-10 ResNet of 32 layers: 15 residual blocks, batch norm",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        _conv("conv1", 3, CHANNELS[0]),
        BatchNorm("norm1", CHANNELS[0]),
        ReLU(),
        *_stages(),
        GlobalAveragePool(),
        Dense("dense", CHANNELS[-1], 10),
    ),
    batch_size=128,
    optimizer=Optimizer(
        "momentum", learning_rate=0.1, momentum=0.9, lr_schedule=((40_000, 0.01), (60_000, 0.001), (80_000, 0.0001))
    ),
    parity_batch_size=4,
    initialization="he",
    published_parameters=466_714,
)
