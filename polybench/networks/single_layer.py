"""A single layer, given as text, inside the smallest network that every engine can train and check.

In the network of `conv 64->64 3x3 pad 1 on 56x56`, a convolution before the layer turns an image into 64
channels, so the layer's input has a gradient. The layers after it reduce its output to ten classes.
Attention is between a dense layer at each position and the mean over time, for sequences of features.
`polybench layers --layer` shows only the layer itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from polybench.errors import BadInput
from polybench.networks.layers import (
    Attention,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    MeanOverTime,
    ReLU,
    Shape,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.timed_layers import split_layers

_NAME = "layer"
_BEFORE = "before"

SYNTAX = (
    "conv 64->64 3x3 [stride 2] [pad 1] [groups 4] [depthwise] [no bias] [relu], dense 512->10 [no bias] [relu],"
    " max_pool 64 2x2 [stride 2], average_pool 64 2x2 [stride 2], batch_norm 64 [relu],"
    " attention 8 heads 512 [causal] [no bias]"
)
"""Accepted layer descriptions, as error messages print them; their attributes may be in any order."""

_ATTRIBUTE = re.compile(
    r" (?:(?P<size>\d+)x(?P=size)|(?P<inputs>\d+)(?:->(?P<outputs>\d+))?|stride (?P<stride>\d+)|pad (?P<pad>\d+)"
    r"|groups (?P<groups>\d+)|(?P<depthwise>depthwise)|(?P<no_bias>no bias)|(?P<relu>relu))(?= |$)"
)
_ATTRIBUTES = {
    "conv": ({"size", "inputs", "outputs"}, {"stride", "pad", "groups", "depthwise", "no_bias", "relu"}),
    "dense": ({"inputs", "outputs"}, {"no_bias", "relu"}),
    "max_pool": ({"size", "inputs"}, {"stride"}),
    "average_pool": ({"size", "inputs"}, {"stride"}),
    "batch_norm": ({"inputs"}, {"relu"}),
}
"""Kind of layer -> its required attributes, and the others."""
_ATTENTION_PATTERN = re.compile(
    r"attention (?P<heads>[1-9]\d*) heads? (?P<features>[1-9]\d*)(?P<causal> causal)?(?P<no_bias> no bias)?"
)
_SIZE_PATTERN = re.compile(r"(?P<height>\d+)x(?P<width>\d+)")
_CHANNELS, _CLASSES = 3, 10


def single_layer(name: str) -> Model:
    """Build the network of `LAYER on HEIGHTxWIDTH`, or `on LENGTH` for attention; a dense layer needs no size."""
    text, _, size_text = name.partition(" on ")
    if attention := _ATTENTION_PATTERN.fullmatch(text):
        return _single_attention(name, attention, size_text)
    attributes = _parse_attributes(text)
    if attributes is None:
        raise BadInput(f"invalid layer {text!r}: expected one of: {SYNTAX}")
    inputs, is_dense = attributes["inputs"], text.startswith("dense ")
    if is_dense and size_text:
        raise BadInput(f"{text!r} takes {inputs} features, not an image: remove --shape {size_text}")
    size_match = _SIZE_PATTERN.fullmatch("1x1" if is_dense else size_text)
    if size_match is None:
        raise BadInput(f"invalid shape {size_text!r} of {text!r}: expected height and width, such as --shape 56x56")
    size = int(size_match["height"]), int(size_match["width"])
    before: list[Layer] = [Conv(_BEFORE, _CHANNELS, inputs, kernel=1)]
    after: list[Layer] = [GlobalAveragePool()]
    if is_dense:
        before, after = [Flatten(), Dense(_BEFORE, _CHANNELS, inputs)], []
    try:
        layer = _make_layer(text.partition(" ")[0], attributes)
        relu: list[Layer] = [ReLU()] if "relu" in attributes else []
        outputs = layer.output_shape((inputs,) if is_dense else (inputs, *size))[0]
        return _network(name, (_CHANNELS, *size), *before, layer, *relu, *after, Dense("after", outputs, _CLASSES))
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from error


def _parse_attributes(text: str) -> dict[str, int] | None:
    """Return the attributes of a layer's description by name, flags as 1; None if they do not fit its kind."""
    kind, _, rest = text.partition(" ")
    required, others = _ATTRIBUTES.get(kind, (set(), set()))
    matches = list(_ATTRIBUTE.finditer(f" {rest}"))
    found = [(name, value) for match in matches for name, value in match.groupdict().items() if value is not None]
    attributes = {name: int(value) if value.isdigit() else 1 for name, value in found}
    is_complete = "".join(match[0] for match in matches) == f" {rest}" and len(attributes) == len(found)
    fits = required and required <= attributes.keys() <= required | others
    if not (is_complete and fits) or {"depthwise", "groups"} <= attributes.keys():
        return None
    return attributes if all(value or name == "pad" for name, value in attributes.items()) else None


def _make_layer(kind: str, attributes: Mapping[str, int]) -> Layer:
    """Make the layer of its attributes."""
    size, inputs, outputs = (attributes.get(name, 0) for name in ("size", "inputs", "outputs"))
    stride, bias = attributes.get("stride", 0), "no_bias" not in attributes
    match kind:
        case "conv":
            groups = inputs if "depthwise" in attributes else attributes.get("groups", 1)
            return Conv(_NAME, inputs, outputs, size, stride or 1, attributes.get("pad", 0), bias, groups)
        case "dense":
            return Dense(_NAME, inputs, outputs, bias)
        case "max_pool":
            return MaxPool(size, stride)
        case "average_pool":
            return AveragePool(size, stride)
        case _:
            return BatchNorm(_NAME, inputs)


def _single_attention(name: str, fields: re.Match[str], length: str) -> Model:
    """Build the network of attention on sequences of `length` positions, whose features have one per class."""
    if not re.fullmatch(r"[1-9]\d{0,4}", length):
        raise BadInput(
            f"invalid shape {length!r} of {fields[0]!r}: expected a number of positions, such as --shape 256"
        )
    heads, features = int(fields["heads"]), int(fields["features"])
    before, after = Dense(_BEFORE, _CLASSES, features), Dense("after", features, _CLASSES)
    try:
        layer = Attention(_NAME, features, heads, bool(fields["causal"]), not fields["no_bias"])
        return _network(name, (int(length), _CLASSES), before, layer, MeanOverTime(), after)
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from error


def _network(name: str, input_shape: Shape, *layers: Layer) -> Model:
    return Model(
        name=name,
        summary=f"{name.partition(' on ')[0]} by itself",
        input_shape=input_shape,
        classes=_CLASSES,
        layers=layers,
        batch_size=2,
        optimizer=Optimizer(),
        parity_batch_size=2,
    )


def is_single_layer(name: str) -> bool:
    """Return True for the name of a network of `single_layer`, which is a description."""
    return " " in name


def timed_layer_name(model: Model) -> str:
    """Return the name that `timed_layers.split_layers` gives to the layer in question."""
    names = [layer.name for layer in split_layers(model)]
    return names[names.index(_BEFORE) + 1]
