"""A single layer, given as text, inside the smallest network that every engine can train and check.

In the network of `conv 3x3 64->64 pad 1 on 56x56`, a convolution before the layer turns an image into 64
channels, so the layer's input has a gradient. The layers after it reduce its output to ten classes.
Attention is between a dense layer at each position and the mean over time, for sequences of features.
`polybench layers --layer` shows only the layer itself.
"""

from __future__ import annotations

import re

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
    "conv 3x3 64->64 [stride 2] [pad 1] [no bias] [relu], dense 512->10 [relu], max_pool 2x2 64 [stride 2],"
    " average_pool 2x2 64, batch_norm 64 [relu], attention 8 heads 512 [causal] [no bias]"
)
"""Accepted layer descriptions, as error messages print them."""

_LAYER_PATTERN = re.compile(
    r"(?P<kind>conv|dense|max_pool|average_pool|batch_norm)(?: (?P<size>\d+)x(?P=size))?"
    r" (?P<inputs>\d+)(?:->(?P<outputs>\d+))?(?: stride (?P<stride>\d+))?(?: pad (?P<pad>\d+))?"
    r"(?P<no_bias> no bias)?(?P<relu> relu)?"
)
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
    match = _LAYER_PATTERN.fullmatch(text)
    layer = _parse_layer(match) if match else None
    if match is None or layer is None:
        raise BadInput(f"invalid layer {text!r}: expected one of: {SYNTAX}")
    size_match = _SIZE_PATTERN.fullmatch(size_text or ("1x1" if isinstance(layer, Dense) else ""))
    if size_match is None:
        raise BadInput(f"invalid input {size_text!r} of {text!r}: expected height and width, such as --input 56x56")
    if isinstance(layer, Dense) and size_match.group() != "1x1":
        raise BadInput(f"{text!r} takes {match['inputs']} features, not an image: remove --input {size_match.group()}")
    inputs = int(match["inputs"])
    relu: list[Layer] = [ReLU()] if match["relu"] else []
    size = int(size_match["height"]), int(size_match["width"])
    before: list[Layer] = [Conv(_BEFORE, _CHANNELS, inputs, kernel=1)]
    after: list[Layer] = [GlobalAveragePool()]
    if isinstance(layer, Dense):
        before, after = [Flatten(), Dense(_BEFORE, _CHANNELS, inputs)], []
    try:
        outputs = layer.output_shape((inputs,) if isinstance(layer, Dense) else (inputs, *size))[0]
        return _network(name, (_CHANNELS, *size), *before, layer, *relu, *after, Dense("after", outputs, _CLASSES))
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from error


def _single_attention(name: str, fields: re.Match[str], length: str) -> Model:
    """Build the network of attention on sequences of `length` positions, whose features have one per class."""
    if not re.fullmatch(r"[1-9]\d{0,4}", length):
        raise BadInput(
            f"invalid input {length!r} of {fields[0]!r}: expected a number of positions, such as --input 256"
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


def timed_layer_name(model: Model) -> str:
    """Return the name that `timed_layers.split_layers` gives to the layer in question."""
    names = [layer.name for layer in split_layers(model)]
    return names[names.index(_BEFORE) + 1]


def _parse_layer(fields: re.Match[str]) -> Layer | None:
    """Return the layer of a match; None if its attributes do not fit its kind."""
    size, inputs, outputs = (int(fields[name] or 0) for name in ("size", "inputs", "outputs"))
    stride, pad = int(fields["stride"] or 0), int(fields["pad"] or 0)
    match fields["kind"]:
        case "conv" if size and inputs and outputs:
            return Conv(_NAME, inputs, outputs, size, stride or 1, pad, bias=not fields["no_bias"])
        case "dense" if inputs and outputs and not size:
            return Dense(_NAME, inputs, outputs)
        case "max_pool" if size and not outputs:
            return MaxPool(size, stride)
        case "average_pool" if size and not outputs:
            return AveragePool(size, stride)
        case "batch_norm" if not size and not outputs:
            return BatchNorm(_NAME, inputs)
    return None
