"""`resnet32` in PyTorch; its tensors have the names of initial_state.npz."""

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs
from torch import nn


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution without bias, followed by batch norm."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with explicit constants."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


class Block(nn.Module):
    """The basic residual block; where channels change, a 1x1 convolution brings the shortcut to the shape."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.norm1 = norm(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.norm2 = norm(outputs)
        self.projection = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.projection(x)
        return F.relu(y, inplace=True)


def stage(inputs: int, outputs: int) -> nn.Sequential:
    """5 blocks, the first of which changes the number of channels."""
    blocks = nn.Sequential()
    for number in range(1, 6):
        blocks.add_module(f"block{number}", Block(inputs if number == 1 else outputs, outputs))
    return blocks


class Network(nn.Module):
    """The CIFAR-10 ResNet of 32 layers, post-activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3x3(3, 16)
        self.norm1 = norm(16)
        self.stage1 = stage(16, 16)
        self.stage2 = stage(16, 32)
        self.stage3 = stage(32, 64)
        self.dense = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, 10) of images (batch, 3, 32, 32)."""
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.dense(F.adaptive_avg_pool2d(x, 1).flatten(1))
