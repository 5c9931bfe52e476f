"""The layers in PyTorch's own modules. It imports torch, so it is imported late: when a network is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, assert_never

from torch import nn

from polybench.core.layer_base import Shape
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Named,
    ReLU,
    Residual,
)
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime
from polybench.engines.pytorch.recurrent import Recurrent, attribute, recurrent

_OVERWRITTEN = (BatchNorm, Residual)
"""Layers whose output the ReLU or the addition after it overwrites, as in torchvision's ResNets.

It is a tensor of its own, and no backward pass reads it. After convolutions that would be right as well, but
is not faster in `lenet` and `rosetta`, and most write those otherwise.
"""


class Network(NamedTuple):
    """A network, and those of its modules that have names."""

    module: Any
    named: dict[str, Any]

    def tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """Parameters and buffers by their canonical names, `layer_name.part`."""
        found = {}
        for name in names:
            layer, _, part = name.rpartition(".")
            module = self.named[layer]
            found[name] = getattr(module, _attribute(module, part))
        return found


def _attribute(module: Any, part: str) -> str:
    """What PyTorch calls a tensor."""
    if isinstance(module, Recurrent):
        return attribute(part)
    return "running_var" if part == "running_variance" else part


def network(layers: Sequence[Layer], shape: Shape, *, given_masks: bool) -> Network:
    """The layers, for images of `shape`, as an `nn.Sequential`.

    With `given_masks` dropout layers are `GivenDropout`.
    """
    builder = _Builder(given_masks, {})
    return Network(builder.sequential(layers, shape), builder.named)


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """body(x) + shortcut(x), `in_place` of body(x)."""

    def __init__(self, body: Any, shortcut: Any, *, in_place: bool) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.in_place = in_place

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        return y.add_(self.shortcut(x)) if self.in_place else y + self.shortcut(x)


class Mean(nn.Module):  # type: ignore[misc]
    """The mean over time of (batch, time, features)."""

    def forward(self, x: Any) -> Any:
        return x.mean(dim=1)


class GivenDropout(nn.Module):  # type: ignore[misc]
    """Multiplies with a mask that is set before each step; see `engines.support.dropout_masks`."""

    mask: Any

    def forward(self, x: Any) -> Any:
        return x * self.mask.to(x.dtype)


class _Builder(NamedTuple):
    """Makes modules, and notes those that have names in `named`."""

    given_masks: bool
    named: dict[str, Any]

    def sequential(self, layers: Sequence[Layer], shape: Shape) -> Any:
        """The layers one after the other, for inputs of `shape` (without the batch)."""
        modules = []
        before: Layer | None = None  # what a block's shortcut also reads, the first layer must leave alone
        for layer in layers:
            modules.append(self.module(layer, shape, in_place=isinstance(before, _OVERWRITTEN)))
            before = layer
            if isinstance(layer, Named):
                self.named[layer.name] = modules[-1]
            shape = layer.output_shape(shape)
        return nn.Sequential(*modules)

    def module(self, layer: Layer, shape: Shape, *, in_place: bool) -> Any:  # noqa: C901, PLR0911, PLR0912 - by kind
        """The layer's module; one that keeps its input's shape may overwrite it where `in_place`."""
        match layer:
            case Conv():
                return nn.Conv2d(
                    layer.inputs, layer.outputs, layer.kernel, layer.stride, layer.pad, bias=layer.bias
                )
            case Dense():
                return nn.Linear(layer.inputs, layer.outputs)
            case BatchNorm():
                norm = nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d
                return norm(layer.channels, eps=layer.epsilon, momentum=layer.momentum)
            case Dropout():
                return GivenDropout() if self.given_masks else nn.Dropout(layer.rate)
            case MaxPool():
                return nn.MaxPool2d(layer.size, layer.stride)
            case AveragePool():
                return nn.AvgPool2d(layer.size, layer.stride)
            case GlobalAveragePool():
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
            case ReLU():
                return nn.ReLU(inplace=in_place)
            case Flatten():
                return nn.Flatten()
            case Residual():
                return ResidualBlock(
                    self.sequential(layer.body, shape),
                    self.sequential(layer.shortcut, shape),
                    in_place=bool(layer.body) and isinstance(layer.body[-1], _OVERWRITTEN),
                )
            case Embedding():
                return nn.Embedding(layer.vocabulary, layer.features)
            case LSTM():
                return recurrent(layer)
            case MeanOverTime():
                return Mean()
            case _:
                assert_never(layer)
