"""The layer types of a network, independent of any framework.

Canonical layout, for every engine: images (batch, channels, height, width), convolution weights (out, in,
kernel height, kernel width), dense weights (out, in), sequences of tokens (batch, time) or of features
(batch, time, features), all in C order. A flatten layer reads its input in that order, channels first.

Each layer has the shape of its output for one image or sequence, and its tensors by name. `weight_shapes` are
trained. `state_shapes` change in every training step without being trained, and belong to the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Operation = Literal["forward", "input gradient", "weight gradient", "activation", "loss", "update", "call"]
"""The operations that are timed separately. For a layer: its forward pass including a following ReLU, since
engines compute both at once; the gradients of its input and of its weights; and the gradient through the
ReLU. For the step: the loss with its gradient, the optimizer's update, and a call of a step without any
work."""


Shape = tuple[int, ...]

Size = Annotated[int, Meta(ge=1, le=1 << 24)]
Padding = Literal["valid", "same"] | Annotated[int, Meta(ge=0, le=1 << 12)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
"""Limits of all engines, which msgspec checks when it reads a layer."""

GATES = ("input", "forget", "cell", "output")
"""The gates of an LSTM in the order of its weights' rows; each gate has as many rows as there are units."""

REVERSE = "reverse_"
"""Prefix of tensor names of an LSTM's backward direction."""


class LayerBase(msgspec.Struct, frozen=True):
    """A layer without tensors whose output has the shape of its input; subclasses override what differs."""

    def weight_shapes(self) -> dict[str, Shape]:
        """Return the canonical shape of each trained tensor, by name."""
        return {}

    def state_shapes(self) -> dict[str, Shape]:
        """Return the shape of each tensor that training changes without a gradient, by name."""
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        """Return the output shape for one image or sequence; raises ValueError if `shape` does not fit."""
        return shape

    def macs(self, shape: Shape) -> int:
        """Return the multiply-accumulate operations (MACs) of the forward pass for one image or sequence.

        Counted as papers do (He et al., 2015, section 3.3: https://arxiv.org/abs/1512.03385). Activations, pooling
        and batch norm take time but hardly multiply, so they count as 0.
        """
        return 0

    def recurrent_macs(self, shape: Shape) -> int:
        """Return those of `macs` that use the layer's own output instead of its input."""
        return 0


class Conv(LayerBase, frozen=True, tag="conv"):
    """Cross-correlation with zero padding.

    `padding` is the number of zeros on each of the four sides. "valid" is 0; "same" keeps the size: (kernel -
    1) / 2. "same" requires stride 1 and an odd kernel: otherwise TensorFlow's "same" adds more zeros at the
    end than at the start, unlike PyTorch and Flux. A number means the same in every framework.
    """

    name: str
    inputs: Size
    outputs: Size
    kernel: Size
    stride: Size = 1
    padding: Padding = "valid"
    bias: bool = True

    def __post_init__(self) -> None:
        if self.padding == "same" and (self.stride != 1 or self.kernel % 2 == 0):
            raise ValueError(
                f'{self.name}: padding "same" requires stride 1 and an odd kernel, got stride {self.stride}'
                f" and kernel {self.kernel}; give the number of zeros on each side instead"
            )

    @property
    def pad(self) -> int:
        """Number of zeros on each of the four sides."""
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

    def macs(self, shape: Shape) -> int:
        return self.inputs * self.kernel**2 * math.prod(self.output_shape(shape))


class _Pool(LayerBase, frozen=True):
    size: Size
    stride: Size = 0  # replaced by the size

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "stride", self.stride or self.size)

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0], *_windows(shape, self.size, self.stride, 0))


class MaxPool(_Pool, frozen=True, tag="max_pool"):
    """Maximum over windows of `size` x `size`, every `stride` (default: `size`) pixels, without padding.

    Windows that would reach beyond the border are dropped: 256 pixels have 85 windows of 3.
    """


class AveragePool(_Pool, frozen=True, tag="average_pool"):
    """Mean over the same windows as `MaxPool`."""


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

    name: str
    channels: Size
    epsilon: Fraction = 1e-5
    momentum: Fraction = 0.1

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.channels,), "bias": (self.channels,)}

    def state_shapes(self) -> dict[str, Shape]:
        return {"running_mean": (self.channels,), "running_variance": (self.channels,)}

    def output_shape(self, shape: Shape) -> Shape:
        _expect(self.name, self.channels, shape)
        if len(shape) == 2:
            raise ValueError(f"{self.name}: batch norm expects images or features, got a sequence of shape {shape}")
        return shape


class Dropout(LayerBase, frozen=True, tag="dropout"):
    """Sets each value to 0 with probability `rate` and divides the others by 1 - rate.

    Srivastava et al., 2014: https://jmlr.org/papers/v15/srivastava14a.html; there, weights are scaled
    instead.
    """

    name: str
    rate: Annotated[float, Meta(gt=0, lt=1)]


class ReLU(LayerBase, frozen=True, tag="relu"):
    """max(x, 0), with gradient 0 at 0."""


class Flatten(LayerBase, frozen=True, tag="flatten"):
    """(channels, height, width) or (time, features) to one axis, in canonical (C) order."""

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


class Dense(LayerBase, frozen=True, tag="dense"):
    """x W' + b with W of shape (out, in)."""

    name: str
    inputs: Size
    outputs: Size

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}

    def output_shape(self, shape: Shape) -> Shape:
        _expect(self.name, self.inputs, shape)
        if len(shape) != 1:
            raise ValueError(f"{self.name}: expected one axis of features, got {shape}; add a flatten layer before it")
        return (self.outputs,)

    def macs(self, shape: Shape) -> int:
        return self.inputs * self.outputs


class Residual(LayerBase, frozen=True, tag="residual"):
    """body(x) + shortcut(x); an empty shortcut is x itself. A ReLU after the sum is a separate layer.

    He et al., 2015: https://arxiv.org/abs/1512.03385
    """

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def output_shape(self, shape: Shape) -> Shape:
        body, shortcut = (_output_shape(branch, shape) for branch in (self.body, self.shortcut))
        if body != shortcut:
            raise ValueError(f"residual block: body and shortcut have different shapes, {body} and {shortcut}")
        return body


class Embedding(LayerBase, frozen=True, tag="embedding"):
    """A row of a table for each token: (time,) integers to (time, features).

    Only the first layer can be an embedding, because the output of a layer does not consist of tokens.
    """

    name: str
    vocabulary: Size
    features: Size

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.vocabulary, self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1:
            raise ValueError(f"{self.name}: expected a sequence of tokens, got {shape}")
        return (*shape, self.features)


class LSTM(LayerBase, frozen=True, tag="lstm"):
    """Long short-term memory: (time, inputs) to the last output or, with `sequence`, to the output of each
    time.

    From h = c = 0, at each time, with the rows of weights and biases in the order of `GATES`:

        i, f, g, o = W x + b + R h + b'
        c <- s(f) c + s(i) tanh(g)
        h <- s(o) tanh(c)

    W is `weight` (4 units, inputs), R `recurrent` (4 units, units), b `bias`, and b' `recurrent_bias`, which
    exists only with two `biases`: PyTorch has both, Keras and Flux have one. With one bias, PyTorch's second
    bias stays 0. s is 1 / (1 + exp(-x)) or, with `recurrent_activation` "hard_sigmoid", 0.2 x + 0.5 clipped
    to 0 and 1, the default of Keras 2. (Keras 3 uses that name for x / 6 + 0.5.)

    `bidirectional` adds a second LSTM with separate tensors that reads from the end. Its outputs are
    concatenated to those of the first, time by time; its last output is the one at the start of the sequence.

    Hochreiter and Schmidhuber, 1997: https://doi.org/10.1162/neco.1997.9.8.1735; with the forget gate of
    Gers, Schmidhuber and Cummins, 2000: https://doi.org/10.1162/089976600300015015
    """

    name: str
    inputs: Size
    units: Size
    bidirectional: bool = False
    sequence: bool = False
    recurrent_activation: Literal["sigmoid", "hard_sigmoid"] = "sigmoid"
    biases: Literal[1, 2] = 1

    @property
    def directions(self) -> tuple[str, ...]:
        """Prefix of the tensor names of each direction."""
        return ("", REVERSE) if self.bidirectional else ("",)

    def weight_shapes(self) -> dict[str, Shape]:
        rows = len(GATES) * self.units
        shapes: dict[str, Shape] = {"weight": (rows, self.inputs), "recurrent": (rows, self.units)}
        shapes |= {"bias": (rows,)} | ({"recurrent_bias": (rows,)} if self.biases == 2 else {})
        return {direction + part: shape for direction in self.directions for part, shape in shapes.items()}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2 or shape[1] != self.inputs:
            raise ValueError(f"{self.name}: expected (time, {self.inputs}), got {shape}")
        features = len(self.directions) * self.units
        return (shape[0], features) if self.sequence else (features,)

    def macs(self, shape: Shape) -> int:
        rows = shape[0] * len(self.directions) * len(GATES) * self.units
        return rows * (self.inputs + self.units)

    def recurrent_macs(self, shape: Shape) -> int:
        return shape[0] * len(self.directions) * len(GATES) * self.units**2


class MeanOverTime(LayerBase, frozen=True, tag="mean_over_time"):
    """The mean of each feature: (time, features) to (features,)."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2:
            raise ValueError(f"mean_over_time: expected (time, features), got {shape}")
        return shape[1:]


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


def _windows(shape: Shape, size: int, stride: int, pad: int) -> Shape:
    """Return the number of windows in each direction, as (height, width)."""
    if len(shape) != 3:
        raise ValueError(f"expected (channels, height, width), got {shape}")
    windows = tuple((length + 2 * pad - size) // stride + 1 for length in shape[1:])
    if min(windows) < 1:
        raise ValueError(f"windows of {size} x {size} with padding {pad} do not fit into {shape}")
    return windows


def _expect(name: str, inputs: int, shape: Shape) -> None:
    if shape[0] != inputs:
        raise ValueError(f"{name}: expected {inputs} channels or features, got {shape}")
