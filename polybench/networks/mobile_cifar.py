"""MobileNetV2 for CIFAR-10, half as wide: inverted residuals with depthwise convolutions.

Sandler et al., 2018, table 2: https://arxiv.org/abs/1801.04381. Channels are rounded to multiples of 8, as in
torchvision. The first convolution and the second stage have stride 1, because images have 32 x 32 pixels, as in
https://github.com/kuangliu/pytorch-cifar. There is no dropout before the last layer.
"""

from collections.abc import Iterator

from polybench.networks.layers import BatchNorm, Conv, Dense, GlobalAveragePool, Layer, ReLU6, Residual
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels of the full width, blocks, and stride of the first block."""

_LAST_CHANNELS = 1280
_STEPS_PER_EPOCH = 390


def _half(channels: int) -> int:
    return max(8, (channels // 2 + 4) // 8 * 8)


def _convolution(name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[Layer]:
    """Build a convolution without bias, followed by batch norm."""
    conv = Conv(name, inputs, outputs, kernel, stride, kernel // 2, bias=False, groups=groups)
    return [conv, BatchNorm(f"{name}_norm", outputs)]


def _blocks() -> Iterator[Layer]:
    inputs, number = _half(32), 0
    yield from (*_convolution("stem", 3, inputs, 3), ReLU6())
    for expansion, channels, blocks, first_stride in _STAGES:
        for stride in (first_stride, *[1] * (blocks - 1)):
            number += 1
            name, hidden, outputs = f"block{number}", expansion * inputs, _half(channels)
            expand = [*_convolution(f"{name}.expand", inputs, hidden, 1), ReLU6()] if expansion > 1 else []
            depthwise = [*_convolution(f"{name}.depthwise", hidden, hidden, 3, stride, groups=hidden), ReLU6()]
            body = (*expand, *depthwise, *_convolution(f"{name}.project", hidden, outputs, 1))
            yield from (Residual(body),) if stride == 1 and inputs == outputs else body
            inputs = outputs
    yield from (*_convolution("last", inputs, _LAST_CHANNELS, 1), ReLU6())


MOBILE_CIFAR = Model(
    name="mobile-cifar",
    summary="MobileNetV2 for CIFAR-10 at half the width: 17 blocks with depthwise convolutions, batch norm",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(*_blocks(), GlobalAveragePool(), Dense("dense", _LAST_CHANNELS, 10)),
    batch_size=128,
    optimizer=Optimizer(
        "momentum",
        learning_rate=0.1,
        momentum=0.9,
        warmup_steps=5 * _STEPS_PER_EPOCH,
        cosine_steps=200 * _STEPS_PER_EPOCH,
    ),
    parity_batch_size=4,
    initialization="he",
    published_parameters=700_490,  # counted from the table of stages
)
