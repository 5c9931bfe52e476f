"""The layer vocabulary: what a network is, without a framework.

Canonical layout, for every engine: images (batch, channels, height, width), convolution
weights (out, in, kernel height, kernel width), dense weights (out, in), C order. A flatten
layer reads its input in that order, channels first. The layers of sequences are in `sequence_layers`.

Every layer says the shape that it puts out for one image, and its tensors by name: `weight_shapes` are
trained, `state_shapes` are not, but change with each training step and belong to what was trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from polybench.core.layer_base import LayerBase, Shape
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime

Padding = Literal["valid", "same"] | int


class Conv(LayerBase, frozen=True, tag="conv"):
    """Cross-correlation with zeros around the image.

    `padding` is the number of zeros, the same on all four sides: "valid" is 0, "same" is what keeps the size,
    (kernel - 1) / 2. "same" exists for stride 1 and odd kernels only: elsewhere TensorFlow's "same" adds more
    zeros at the end than at the start, which neither PyTorch nor Flux does; a number means the same to all.
    """

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: Padding = "valid"
    bias: bool = True

    def __post_init__(self) -> None:
        if self.padding == "same" and (self.stride != 1 or self.kernel % 2 == 0):
            raise ValueError(
                f'{self.name}: padding "same" needs stride 1 and an odd kernel, not stride {self.stride} and '
                f"kernel {self.kernel}; give the number of zeros on each side instead"
            )

    @property
    def pad(self) -> int:
        """Zeros on each of the four sides."""
        match self.padding:
            case "valid":
                return 0
            case "same":
                return (self.kernel - 1) // 2
            case number:
                return number

    def weight_shapes(self) -> dict[str, Shape]:
        weight = {"weight": (self.outputs, self.inputs, self.kernel, self.kernel)}
        return weight | ({"bias": (self.outputs,)} if self.bias else {})

    def output_shape(self, shape: Shape) -> Shape:
        _expect(self.name, self.inputs, shape)
        return (self.outputs, *_windows(shape, self.kernel, self.stride, self.pad))


class _Pool(LayerBase, frozen=True):
    size: int
    stride: int = 0  # 0 is never read: it becomes the size

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "stride", self.stride or self.size)

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0], *_windows(shape, self.size, self.stride, 0))


class MaxPool(_Pool, frozen=True, tag="max_pool"):
    """Maximum over windows of `size` x `size`, every `stride` (default: `size`) pixels; no padding.

    Windows that would reach beyond the border are left out: 256 pixels give 85 windows of 3.
    """


class AveragePool(_Pool, frozen=True, tag="average_pool"):
    """Mean over the windows of `MaxPool`."""


class GlobalAveragePool(LayerBase, frozen=True, tag="global_average_pool"):
    """(channels, height, width) to (channels,): the mean of each channel."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"a mean over all pixels takes (channels, height, width), and gets {shape}")
        return (shape[0],)


class BatchNorm(LayerBase, frozen=True, tag="batch_norm"):
    """weight (x - mean) / sqrt(variance + epsilon) + bias, for each channel, or feature of a dense layer.

    Mean and variance (divided by n) are those of the batch, over all its pixels. For use after the training,
    running <- (1 - momentum) running + momentum batch; whether the batch's variance is then divided by n or
    by n - 1 is a convention of the engine (`Conventions.running_variance`). Keras's momentum is 1 - this one.
    Ioffe and Szegedy, 2015: https://arxiv.org/abs/1502.03167
    """

    name: str
    channels: int
    epsilon: float = 1e-5
    momentum: float = 0.1

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.channels,), "bias": (self.channels,)}

    def state_shapes(self) -> dict[str, Shape]:
        return {"running_mean": (self.channels,), "running_variance": (self.channels,)}

    def output_shape(self, shape: Shape) -> Shape:
        _expect(self.name, self.channels, shape)
        if len(shape) == 2:
            raise ValueError(f"{self.name} normalizes images or features, no sequence of shape {shape}")
        return shape


class Dropout(LayerBase, frozen=True, tag="dropout"):
    """Sets each value to 0 with probability `rate` and divides the others by 1 - rate.

    Srivastava et al., 2014: https://jmlr.org/papers/v15/srivastava14a.html; there weights are scaled instead.
    """

    name: str
    rate: float


class ReLU(LayerBase, frozen=True, tag="relu"):
    """max(x, 0), with gradient 0 at 0."""


class Flatten(LayerBase, frozen=True, tag="flatten"):
    """(channels, height, width) or (time, features) to one axis, in canonical (C) order."""

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


class Dense(LayerBase, frozen=True, tag="dense"):
    """x W' + b with W of shape (out, in)."""

    name: str
    inputs: int
    outputs: int

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}

    def output_shape(self, shape: Shape) -> Shape:
        _expect(self.name, self.inputs, shape)
        if len(shape) != 1:
            raise ValueError(f"{self.name} takes features, and gets {shape}; flatten them before")
        return (self.outputs,)


class Residual(LayerBase, frozen=True, tag="residual"):
    """body(x) + shortcut(x); an empty shortcut is x itself. A ReLU after it is a layer of its own.

    He et al., 2015: https://arxiv.org/abs/1512.03385
    """

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def output_shape(self, shape: Shape) -> Shape:
        body, shortcut = ((shape, *_shapes(branch, shape))[-1] for branch in (self.body, self.shortcut))
        if body != shortcut:
            raise ValueError(f"a residual block cannot add {body} and {shortcut}")
        return body


Layer = (
    Conv
    | MaxPool
    | AveragePool
    | GlobalAveragePool
    | BatchNorm
    | Dropout
    | ReLU
    | Flatten
    | Dense
    | Residual
    | Embedding
    | LSTM
    | MeanOverTime
)
Named = Conv | BatchNorm | Dropout | Dense | Embedding | LSTM


def walk(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Every layer, also inside of residual blocks: the block, its body, its shortcut."""
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from walk(layer.body)
            yield from walk(layer.shortcut)


def weight_shapes(layers: Sequence[Layer]) -> dict[str, Shape]:
    """What is trained: `layer_name.weight` and the like to canonical shape, in layer order."""
    return {
        f"{layer.name}.{part}": shape
        for layer in walk(layers)
        if isinstance(layer, Named)
        for part, shape in layer.weight_shapes().items()
    }


def state_shapes(layers: Sequence[Layer]) -> dict[str, Shape]:
    """What changes in training without a gradient: `layer_name.running_mean` and the like."""
    return {
        f"{layer.name}.{part}": shape
        for layer in walk(layers)
        if isinstance(layer, Named)
        for part, shape in layer.state_shapes().items()
    }


def activations(layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Layer, Shape]]:
    """Every layer with the shape that it puts out for one image of `shape`, as `passes` goes through them."""
    return ((layer, after) for layer, _, after in passes(layers, shape))


def passes(layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Layer, Shape, Shape]]:
    """Every layer with the shapes that go in and come out for one image or sequence of `shape`.

    Also inside of residual blocks: the body, the shortcut, and then the block, which puts out their sum.
    """
    for layer in layers:
        if isinstance(layer, Residual):
            yield from passes(layer.body, shape)
            yield from passes(layer.shortcut, shape)
        after = layer.output_shape(shape)
        yield layer, shape, after
        shape = after


def _shapes(layers: Sequence[Layer], shape: Shape) -> Iterator[Shape]:
    for layer in layers:
        shape = layer.output_shape(shape)
        yield shape


def _windows(shape: Shape, size: int, stride: int, pad: int) -> Shape:
    """How many windows fit below and beside each other."""
    if len(shape) != 3:
        raise ValueError(f"it takes (channels, height, width), and gets {shape}")
    windows = tuple((length + 2 * pad - size) // stride + 1 for length in shape[1:])
    if min(windows) < 1:
        raise ValueError(f"windows of {size} x {size} with {pad} zeros around do not fit into {shape}")
    return windows


def _expect(name: str, inputs: int, shape: Shape) -> None:
    if shape[0] != inputs:
        raise ValueError(f"{name} takes {inputs} channels or features, and gets {shape}")
