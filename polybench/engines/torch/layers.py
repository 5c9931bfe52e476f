"""PyTorch modules for the layers of `networks.layers`. This module imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import torch
from torch import nn
from torch.nn import functional

from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec
from polybench.networks.padding import Sides
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE

_OVERWRITABLE = (spec.BatchNorm, spec.Residual)
"""Layers whose output the next ReLU or addition may overwrite, as in torchvision's ResNets.

Their output is a separate tensor that no backward pass reads. Overwriting would also be correct after
convolutions, but is not faster in `lenet` and `dlframeworks-cnn`, and is not common practice.
"""

_LSTM_ATTRIBUTES = {
    "weight": "weight_ih_l0",
    "recurrent": "weight_hh_l0",
    "bias": "bias_ih_l0",
    "recurrent_bias": "bias_hh_l0",
}


class Network(NamedTuple):
    """PyTorch module and its submodules with canonical names."""

    module: Any
    named_modules: dict[str, Any]

    def tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """Views of parameters and buffers by canonical name, `layer_name.tensor`."""
        return {name: tensor.detach()[rows] for name, (tensor, rows) in self._locate(names).items()}

    def gradients(self, names: Iterable[str], compute: Callable[[list[Any]], Sequence[Any]]) -> dict[str, Any]:
        """Gradients by canonical name; `compute` returns those of a list of parameters."""
        located = self._locate(names)
        parameters = list({id(parameter): parameter for parameter, _ in located.values()}.values())
        gradients = dict(zip(map(id, parameters), compute(parameters), strict=True))
        return {name: gradients[id(parameter)][rows] for name, (parameter, rows) in located.items()}

    def _locate(self, names: Iterable[str]) -> dict[str, tuple[Any, slice]]:
        """Return the parameter or buffer that contains each canonical tensor, and its rows there."""
        located = {}
        for name in names:
            layer, _, tensor = name.rpartition(".")
            module = self.named_modules[layer]
            if isinstance(module, SelfAttention):
                located[name] = module.locate(tensor)
            else:
                located[name] = getattr(module, _attribute(module, tensor)), slice(None)
        return located


def _attribute(module: Any, tensor: str) -> str:
    """Return PyTorch's attribute name for a canonical tensor."""
    if isinstance(module, SequentialLSTM):
        return lstm_attribute(tensor)
    return "running_var" if tensor == "running_variance" else tensor


def build_network(layers: Sequence[spec.Layer], shape: spec.Shape, *, fixed_masks: bool) -> Network:
    """Build the layers for images of `shape` as an `nn.Sequential`.

    With `fixed_masks`, dropout layers are `FixedMaskDropout`.
    """
    builder = _Builder(fixed_masks, {})
    return Network(builder.build_all(layers, shape), builder.named_modules)


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """Residual block, body(x) + shortcut(x); with `in_place`, the sum overwrites body(x)."""

    def __init__(self, body: Any, shortcut: Any, *, in_place: bool) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.in_place = in_place

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        return y.add_(self.shortcut(x)) if self.in_place else y + self.shortcut(x)


class TimeMean(nn.Module):  # type: ignore[misc]
    """Mean over time of (batch, time, features)."""

    def forward(self, x: Any) -> Any:
        return x.mean(dim=1)


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Multi-head self-attention as in nanoGPT and timm: one product for query, key and value, then PyTorch's kernel."""

    def __init__(self, layer: spec.Attention) -> None:
        super().__init__()
        self.heads, self.causal = layer.heads, layer.causal
        self.query_key_value = nn.Linear(layer.features, 3 * layer.features, bias=layer.bias)
        self.output = nn.Linear(layer.features, layer.features, bias=layer.bias)

    def forward(self, x: Any) -> Any:
        batch, time, features = x.shape
        parts = self.query_key_value(x).split(features, dim=2)
        q, k, v = (part.view(batch, time, self.heads, features // self.heads).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, features))

    def locate(self, tensor: str) -> tuple[Any, slice]:
        """Return the parameter that contains a canonical tensor, and its rows there."""
        projection, _, attribute = tensor.partition("_")
        number, features = PROJECTIONS.index(projection), self.output.in_features
        if projection == "output":
            return getattr(self.output, attribute), slice(None)
        return getattr(self.query_key_value, attribute), slice(number * features, (number + 1) * features)


class Positions(nn.Module):  # type: ignore[misc]
    """Adds a trained row to each position."""

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, features))

    def forward(self, x: Any) -> Any:
        return x + self.weight[: x.shape[1]]


class Patches(nn.Conv2d):  # type: ignore[misc]
    """Maps patches of an image to a sequence, as in timm."""

    def forward(self, x: Any) -> Any:
        return super().forward(x).flatten(2).transpose(1, 2)


class PaddedConv(nn.Conv2d):  # type: ignore[misc]
    """Convolution with more padding on one side than on the opposite one."""

    def __init__(self, pads: Sides, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.pads = pads.width_first

    def forward(self, x: Any) -> Any:
        return super().forward(functional.pad(x, self.pads))


class ImageMean(nn.Module):  # type: ignore[misc]
    """Average pool of the pixels of the image only; `pool` counts padding."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Any) -> Any:
        return self.pool(x) / self.pool(torch.ones_like(x[:1, :1]))


class ClassToken(nn.Module):  # type: ignore[misc]
    """Adds a trained position before the first."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(features))

    def forward(self, x: Any) -> Any:
        return torch.cat([self.token.expand(len(x), 1, -1), x], dim=1)


class FirstPosition(nn.Module):  # type: ignore[misc]
    """The first position of (batch, time, features)."""

    def forward(self, x: Any) -> Any:
        return x[:, 0]


class FixedMaskDropout(nn.Module):  # type: ignore[misc]
    """In training, multiplies its input by a mask set before each step; see `engines.shared.batches.dropout_masks`."""

    mask: Any

    def forward(self, x: Any) -> Any:
        return x * self.mask.to(x.dtype) if self.training else x


class _Builder(NamedTuple):
    """Builds modules and collects those with canonical names in `named_modules`."""

    fixed_masks: bool
    named_modules: dict[str, Any]

    def build_all(self, layers: Sequence[spec.Layer], shape: spec.Shape) -> Any:
        """Build the layers in order for inputs of `shape` (without the batch)."""
        modules = []
        previous: spec.Layer | None = None  # a block's first layer must not overwrite the shortcut's input
        for layer in layers:
            modules.append(self.build(layer, shape, in_place=isinstance(previous, _OVERWRITABLE)))
            previous = layer
            if isinstance(layer, spec.Named):
                self.named_modules[layer.name] = modules[-1]
            shape = layer.output_shape(shape)
        return nn.Sequential(*modules)

    def build(self, layer: spec.Layer, shape: spec.Shape, *, in_place: bool) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case per kind
        """Build the layer's module; with `in_place`, a ReLU or ReLU6 may overwrite its input."""
        match layer:
            case spec.Conv():
                return _conv(layer)
            case spec.Dense():
                linear = nn.Linear(layer.inputs, layer.outputs, bias=layer.bias)
                if layer.tied is not None:
                    linear.weight = self.named_modules[layer.tied].weight
                return linear
            case spec.BatchNorm():
                norm = nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d
                return norm(layer.channels, eps=layer.epsilon, momentum=layer.momentum)
            case spec.LayerNorm():
                return nn.LayerNorm(layer.features, eps=layer.epsilon, bias=layer.bias)
            case spec.GroupNorm():
                return nn.GroupNorm(layer.groups, layer.channels, eps=layer.epsilon)
            case spec.Dropout():
                return FixedMaskDropout() if self.fixed_masks else nn.Dropout(layer.rate)
            case spec.MaxPool() | spec.AveragePool():
                return _pool(layer)
            case spec.GlobalAveragePool():
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
            case spec.ReLU():
                return nn.ReLU(inplace=in_place)
            case spec.ReLU6():
                return nn.ReLU6(inplace=in_place)
            case spec.GELU():
                return nn.GELU(approximate=layer.approximate)
            case spec.SiLU():
                return nn.SiLU()
            case spec.Flatten():
                return nn.Flatten()
            case spec.Residual():
                return ResidualBlock(
                    self.build_all(layer.body, shape),
                    self.build_all(layer.shortcut, shape),
                    in_place=bool(layer.body) and isinstance(layer.body[-1], _OVERWRITABLE),
                )
            case spec.Embedding():
                return nn.Embedding(layer.vocabulary, layer.features)
            case spec.LSTM():
                if layer.recurrent_activation != "sigmoid":
                    raise unsupported_layer("PyTorch", layer, f'recurrent_activation = "{layer.recurrent_activation}"')
                return SequentialLSTM(layer)
            case spec.MeanOverTime():
                return TimeMean()
            case spec.Attention():
                return SelfAttention(layer)
            case spec.Positions():
                return Positions(layer.length, layer.features)
            case spec.Patches():
                return Patches(layer.inputs, layer.outputs, layer.size, layer.size, bias=layer.bias)
            case spec.ClassToken():
                return ClassToken(layer.features)
            case spec.FirstPosition():
                return FirstPosition()
            case _:
                assert_never(layer)


def _conv(layer: spec.Conv) -> Any:
    sizes, pads = (layer.inputs, layer.outputs, layer.kernel, layer.stride), layer.pads
    if pads.symmetric is not None:
        return nn.Conv2d(*sizes, pads.symmetric, groups=layer.groups, bias=layer.bias)
    return PaddedConv(pads, *sizes, groups=layer.groups, bias=layer.bias)


def _pool(layer: spec.MaxPool | spec.AveragePool) -> Any:
    pads, window = layer.pads, (layer.size, layer.stride)
    own = pads.symmetric if max(pads) <= layer.size // 2 else None  # PyTorch's pools have no other padding
    if isinstance(layer, spec.MaxPool):
        if own is not None:
            return nn.MaxPool2d(*window, own)
        return nn.Sequential(nn.ConstantPad2d(pads.width_first, -math.inf), nn.MaxPool2d(*window))
    if own is not None:
        return nn.AvgPool2d(*window, own, count_include_pad=layer.count_padding)
    pool = nn.Sequential(nn.ZeroPad2d(pads.width_first), nn.AvgPool2d(*window))
    return pool if layer.count_padding else ImageMean(pool)


class SequentialLSTM(nn.LSTM):  # type: ignore[misc]
    """`nn.LSTM` for use in a `Sequential`: returns all outputs, or only the last output of each direction.

    PyTorch's gates are in the canonical order. `nn.LSTM` always has two biases. If the network has one, the
    second is 0 and not trained, which is equivalent.
    """

    def __init__(self, layer: spec.LSTM) -> None:
        super().__init__(layer.inputs, layer.units, batch_first=True, bidirectional=layer.bidirectional)
        self.sequence = layer.sequence
        if layer.biases == 1:
            for direction in layer.directions:
                bias = getattr(self, lstm_attribute(f"{direction}recurrent_bias"))
                nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        outputs, (last, _) = super().forward(x)
        if self.sequence:
            return outputs
        # (directions, batch, units). The last output of the second direction is at the first time step.
        return last[0] if len(last) == 1 else torch.cat([last[0], last[1]], dim=1)


def lstm_attribute(tensor: str) -> str:
    """Return `nn.LSTM`'s attribute name for a canonical tensor."""
    direction = "_reverse" if tensor.startswith(REVERSE) else ""
    return _LSTM_ATTRIBUTES[tensor.removeprefix(REVERSE)] + direction
