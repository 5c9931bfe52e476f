"""The layer types of a network, independent of any framework.

Canonical layout, for every engine: images (batch, channels, height, width), convolution weights (out, in,
kernel height, kernel width), dense weights (out, in), sequences of tokens (batch, time) or of features
(batch, time, features), all in C order. A flatten layer reads its input in that order, channels first.

Each layer has the shape of its output for one image or sequence, and its tensors by name. `weight_shapes` are
trained. `state_shapes` change in every training step without being trained, and belong to the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from polybench.networks.layer_base import Fraction, LayerBase, Shape, Size, expect_inputs
from polybench.networks.padding import Padding, Sides, check_padding, sides
from polybench.networks.sequence_layers import (
    LSTM,
    Attention,
    ClassToken,
    Embedding,
    FirstPosition,
    MeanOverTime,
    Patches,
    Positions,
)

Operation = Literal["forward", "input gradient", "weight gradient", "relu gradient", "loss", "update", "call"]
"""The operations that are timed separately. For a layer: its forward pass including a following ReLU, since
engines compute both at once; the gradients of its input and of its weights; and the gradient through the
ReLU. For the step: the loss with its gradient, the optimizer's update, and a call of a step without any
work."""


class Conv(LayerBase, frozen=True, tag="conv"):
    """Cross-correlation with zeros as padding.

    With several `groups`, group g of the outputs reads group g of the inputs only. As many groups as inputs make a
    depthwise convolution.
    """

    has_product: ClassVar[bool] = True
    has_fast_algorithm: ClassVar[bool] = True
    fuses_relu: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"inputs": 0}

    name: str
    inputs: Size
    outputs: Size
    kernel: Size
    stride: Size = 1
    padding: Padding = "valid"
    bias: bool = True
    groups: Size = 1

    def __post_init__(self) -> None:
        _expect_divisor(self.name, self.groups, self.inputs, "inputs")
        _expect_divisor(self.name, self.groups, self.outputs, "outputs")
        check_padding(self.name, self.padding, self.kernel, self.stride)
        if not isinstance(self.padding, str):
            msgspec.structs.force_setattr(self, "padding", self.pads.padding)

    @property
    def pads(self) -> Sides:
        """Number of zeros on each side."""
        return sides(self.padding, self.kernel)

    def weight_shapes(self) -> dict[str, Shape]:
        weight = {"weight": (self.outputs, self.inputs // self.groups, self.kernel, self.kernel)}
        return weight | ({"bias": (self.outputs,)} if self.bias else {})

    def output_shape(self, shape: Shape) -> Shape:
        expect_inputs(self.name, self.inputs, shape[0], shape)
        return (self.outputs, *_windows(shape, self.kernel, self.stride, self.pads))

    def macs(self, shape: Shape) -> int:
        return self.inputs // self.groups * self.kernel**2 * math.prod(self.output_shape(shape))


class _Pool(LayerBase, frozen=True, omit_defaults=True):
    size: Size
    stride: Size = 0  # replaced by the size
    padding: Padding = 0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "stride", self.stride or self.size)
        kind = str(self.__struct_config__.tag)
        check_padding(kind, self.padding, self.size, self.stride)
        if max(self.pads) >= self.size:
            raise ValueError(f"{kind}: padding {self.pads} has windows without pixels: expected less than {self.size}")
        msgspec.structs.force_setattr(self, "padding", self.pads.padding)

    @property
    def pads(self) -> Sides:
        """Number of pixels added on each side."""
        return sides(self.padding, self.size)

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0], *_windows(shape, self.size, self.stride, self.pads))


class MaxPool(_Pool, frozen=True, tag="max_pool"):
    """Maximum over windows of `size` x `size`, every `stride` (default: `size`) pixels; padding is never the maximum.

    Windows that would reach beyond border and padding are dropped: 256 pixels have 85 windows of 3.
    """

    rules: ClassVar[tuple[str, ...]] = ("max_pool_within",)


class AveragePool(_Pool, frozen=True, tag="average_pool"):
    """Mean over the same windows as `MaxPool`.

    Padding counts as pixels of value 0, as in PyTorch and Flux, or not at all if `count_padding` is False, as in Keras.
    """

    count_padding: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "count_padding", self.count_padding or not any(self.pads))


class GlobalAveragePool(LayerBase, frozen=True, tag="global_average_pool"):
    """The mean of each channel: (channels, height, width) to (channels,)."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"global_average_pool: expected (channels, height, width), got {shape}")
        return (shape[0],)


class BatchNorm(LayerBase, frozen=True, tag="batch_norm"):
    """weight (x - mean) / sqrt(variance + epsilon) + bias, for each channel, or feature of a dense layer.

    Mean and variance (divided by n) are those of the batch, over all of its pixels. For inference, running <-
    (1 - momentum) running + momentum batch. Each engine has a convention whether the batch's variance is then
    divided by n or by n - 1 (`NumericalConventions.running_variance`). Keras's momentum is 1 - this one.
    Ioffe and Szegedy, 2015: https://arxiv.org/abs/1502.03167
    """

    is_norm: ClassVar[bool] = True
    fuses_relu: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"channels": 0}

    name: str
    channels: Size
    epsilon: Fraction = 1e-5
    momentum: Fraction = 0.1

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.channels,), "bias": (self.channels,)}

    def state_shapes(self) -> dict[str, Shape]:
        return {"running_mean": (self.channels,), "running_variance": (self.channels,)}

    def output_shape(self, shape: Shape) -> Shape:
        expect_inputs(self.name, self.channels, shape[0], shape)
        if len(shape) == 2:
            raise ValueError(f"{self.name}: batch norm expects images or features, got a sequence of shape {shape}")
        return shape


class LayerNorm(LayerBase, frozen=True, tag="layer_norm"):
    """weight (x - mean) / sqrt(variance + epsilon) + bias, over the features of each position.

    The variance is divided by n. Ba, Kiros and Hinton, 2016: https://arxiv.org/abs/1607.06450
    """

    is_norm: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"features": -1}

    name: str
    features: Size
    epsilon: Fraction = 1e-5
    bias: bool = True

    def weight_shapes(self) -> dict[str, Shape]:
        weight: dict[str, Shape] = {"weight": (self.features,)}
        return weight | ({"bias": (self.features,)} if self.bias else {})

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) == 3:
            raise ValueError(f"{self.name}: layer norm expects a sequence or features, got images of shape {shape}")
        expect_inputs(self.name, self.features, shape[-1], shape)
        return shape


class GroupNorm(LayerBase, frozen=True, tag="group_norm"):
    """The same over all pixels of a group of channels, in each image; weight and bias for each channel.

    Wu and He, 2018: https://arxiv.org/abs/1803.08494
    """

    is_norm: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"channels": 0}

    name: str
    channels: Size
    groups: Size
    epsilon: Fraction = 1e-5

    def __post_init__(self) -> None:
        _expect_divisor(self.name, self.groups, self.channels, "channels")

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.channels,), "bias": (self.channels,)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"{self.name}: group norm expects images, got {shape}")
        expect_inputs(self.name, self.channels, shape[0], shape)
        return shape


class Dropout(LayerBase, frozen=True, tag="dropout"):
    """Sets each value to 0 with probability `rate` and divides the others by 1 - rate.

    Srivastava et al., 2014: https://jmlr.org/papers/v15/srivastava14a.html; there, weights are scaled
    instead.
    """

    is_random: ClassVar[bool] = True

    name: str
    rate: Annotated[float, Meta(gt=0, lt=1)]


class ReLU(LayerBase, frozen=True, tag="relu"):
    """max(x, 0), with gradient 0 at 0."""

    is_activation: ClassVar[bool] = True
    rules: ClassVar[tuple[str, ...]] = ("relu_at_zero",)


class ReLU6(LayerBase, frozen=True, tag="relu6"):
    """min(max(x, 0), 6), with gradient 0 at 0 and at 6."""

    is_activation: ClassVar[bool] = True


class GELU(LayerBase, frozen=True, tag="gelu"):
    """x P(x) with the normal distribution P or, with `approximate` "tanh", its approximation.

    That is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    Hendrycks and Gimpel, 2016: https://arxiv.org/abs/1606.08415
    """

    is_activation: ClassVar[bool] = True

    approximate: Literal["none", "tanh"] = "none"


class SiLU(LayerBase, frozen=True, tag="silu"):
    """x / (1 + exp(-x))."""

    is_activation: ClassVar[bool] = True


class Flatten(LayerBase, frozen=True, tag="flatten"):
    """(channels, height, width) or (time, features) to one axis, in canonical (C) order."""

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


class Dense(LayerBase, frozen=True, tag="dense"):
    """x W' + b with W of shape (out, in), for features or for each position of a sequence.

    `tied` is the name of an earlier layer whose `weight` it uses in place of its own, such as the token embedding in
    the head of a language model. A tied layer has no bias.
    Press and Wolf, 2016: https://arxiv.org/abs/1608.05859
    """

    has_product: ClassVar[bool] = True
    fuses_relu: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"inputs": -1}

    name: str
    inputs: Size
    outputs: Size
    bias: bool = True
    tied: str | None = None

    def __post_init__(self) -> None:
        if self.tied is not None and self.bias:
            raise ValueError(f"{self.name}: a tied dense layer has no bias: expected bias = false")

    @property
    def weight_name(self) -> str:
        """Name of its weight among the tensors of the network."""
        return f"{self.tied or self.name}.weight"

    def weight_shapes(self) -> dict[str, Shape]:
        weight: dict[str, Shape] = {} if self.tied else {"weight": (self.outputs, self.inputs)}
        return weight | ({"bias": (self.outputs,)} if self.bias else {})

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) == 3:
            problem = f"expected features or a sequence, got {shape}; add a flatten layer before it"
            raise ValueError(f"{self.name}: {problem}")
        expect_inputs(self.name, self.inputs, shape[-1], shape)
        return (*shape[:-1], self.outputs)

    def macs(self, shape: Shape) -> int:
        return math.prod(shape) * self.outputs


class Residual(LayerBase, frozen=True, tag="residual"):
    """body(x) + shortcut(x); an empty shortcut is x itself. A ReLU after the sum is a separate layer.

    He et al., 2015: https://arxiv.org/abs/1512.03385
    """

    fuses_relu: ClassVar[bool] = True

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def output_shape(self, shape: Shape) -> Shape:
        body, shortcut = (_output_shape(branch, shape) for branch in (self.body, self.shortcut))
        if body != shortcut:
            raise ValueError(f"residual block: body and shortcut have different shapes, {body} and {shortcut}")
        return body


Layer = (
    Conv
    | MaxPool
    | AveragePool
    | GlobalAveragePool
    | BatchNorm
    | LayerNorm
    | GroupNorm
    | Dropout
    | ReLU
    | ReLU6
    | GELU
    | SiLU
    | Flatten
    | Dense
    | Residual
    | Embedding
    | LSTM
    | MeanOverTime
    | Attention
    | Positions
    | Patches
    | ClassToken
    | FirstPosition
)
Named = (
    Conv
    | BatchNorm
    | LayerNorm
    | GroupNorm
    | Dropout
    | Dense
    | Embedding
    | LSTM
    | Attention
    | Positions
    | Patches
    | ClassToken
)


def walk(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Iterate over every layer, including those of residual blocks: the block, its body, its shortcut."""
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from walk(layer.body)
            yield from walk(layer.shortcut)


def weight_shapes(layers: Sequence[Layer]) -> dict[str, Shape]:
    """Return the canonical shape of each trained tensor, `layer_name.weight` and the like, in layer order."""
    return {
        f"{layer.name}.{part}": shape
        for layer in walk(layers)
        if isinstance(layer, Named)
        for part, shape in layer.weight_shapes().items()
    }


def state_shapes(layers: Sequence[Layer]) -> dict[str, Shape]:
    """Return the shape of each tensor that training changes without a gradient: `layer_name.running_mean`
    etc."""
    return {
        f"{layer.name}.{part}": shape
        for layer in walk(layers)
        if isinstance(layer, Named)
        for part, shape in layer.state_shapes().items()
    }


def layer_shapes(layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Layer, Shape, Shape]]:
    """Iterate over every layer with its input and output shapes, for one image or sequence of `shape`.

    A residual block comes after the layers of its body and of its shortcut, with the sum as its output.
    """
    for layer in layers:
        if isinstance(layer, Residual):
            yield from layer_shapes(layer.body, shape)
            yield from layer_shapes(layer.shortcut, shape)
        after = layer.output_shape(shape)
        yield layer, shape, after
        shape = after


def _output_shape(layers: Sequence[Layer], shape: Shape) -> Shape:
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def _windows(shape: Shape, size: int, stride: int, pads: Sides) -> Shape:
    """Return the number of windows in each direction, as (height, width)."""
    if len(shape) != 3:
        raise ValueError(f"expected (channels, height, width), got {shape}")
    windows = tuple((length + sum(pad) - size) // stride + 1 for length, pad in zip(shape[1:], pads.axes, strict=True))
    if min(windows) < 1:
        raise ValueError(f"windows of {size} x {size} with padding {pads} do not fit into {shape}")
    return windows


def check_layer(layer: Layer, weights: Mapping[str, Shape], input_shape: Shape) -> None:
    """Raise ValueError if a layer does not fit the layers before it, with these `weights`, or the network's input."""
    if isinstance(layer, Attention) and layer.causal and len(input_shape) == 3:
        raise ValueError(f"{layer.name}: a causal mask needs a sequence in time, but the input is images: omit causal")
    if isinstance(layer, Dense) and layer.tied is not None:
        expected, found = (layer.outputs, layer.inputs), weights.get(layer.weight_name)
        if found is None:
            names = ", ".join(name.removesuffix(".weight") for name in weights if name.endswith(".weight"))
            raise ValueError(
                f"{layer.name}: no layer {layer.tied} before it has a weight to share: expected one of {names}"
            )
        if found != expected:
            raise ValueError(
                f"{layer.name}: the weight of {layer.tied} is {found}, but this layer needs {expected}:"
                " expected equal shapes: change outputs or inputs, or omit tied"
            )


def _expect_divisor(name: str, groups: int, number: int, what: str) -> None:
    if number % groups:
        raise ValueError(f"{name}: {groups} groups do not divide {number} {what}: expected a divisor of it")
