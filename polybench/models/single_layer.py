"""A layer by itself, as text: the smallest network around it that every engine can train and check.

`conv 3x3 64->64 pad 1 on 56x56` stands behind what makes 64 channels of an image, so that its input has a
gradient, and in front of what makes ten classes of its output. Only the layer is meant; `polybench layers
--layer` shows nothing else.
"""

from __future__ import annotations

import re

from polybench.core.errors import BadInput
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    ReLU,
)
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.core.pieces import pieces

_NAME = "layer"
_BEFORE = "before"

FORM = (
    "conv 3x3 64->64 [stride 2] [pad 1] [no bias] [relu], dense 512->10 [relu], max_pool 2x2 64 [stride 2],"
    " average_pool 2x2 64, batch_norm 64 [relu]"
)
"""What can be written."""

_TEXT = re.compile(
    r"(?P<kind>conv|dense|max_pool|average_pool|batch_norm)(?: (?P<size>\d+)x(?P=size))?"
    r" (?P<inputs>\d+)(?:->(?P<outputs>\d+))?(?: stride (?P<stride>\d+))?(?: pad (?P<pad>\d+))?"
    r"(?P<no_bias> no bias)?(?P<relu> relu)?"
)
_PLACE = re.compile(r"(?P<height>\d+)x(?P<width>\d+)")
_CHANNELS, _CLASSES = 3, 10


def single_layer(name: str) -> Model:
    """The network of `LAYER on HEIGHTxWIDTH`; a dense layer needs no image.

    Raises:
        BadInput: the text says no layer, or one that does not fit into the image.
    """
    text, _, place = name.partition(" on ")
    given = _TEXT.fullmatch(text)
    layer = _layer(given) if given else None
    if given is None or layer is None:
        raise BadInput(f"no layer is {text!r}; write one of: {FORM}")
    images = _PLACE.fullmatch(place or ("1x1" if isinstance(layer, Dense) else ""))
    if images is None:
        raise BadInput(
            f"{text!r} needs the height and width of its input, not {place!r}; write --input 56x56"
        )
    if isinstance(layer, Dense) and images.group() != "1x1":
        raise BadInput(
            f"{text!r} takes {given['inputs']} features and no image; leave --input {images.group()} out"
        )
    inputs = int(given["inputs"])
    relu: list[Layer] = [ReLU()] if given["relu"] else []
    size = int(images["height"]), int(images["width"])
    before: list[Layer] = [Conv(_BEFORE, _CHANNELS, inputs, kernel=1)]
    after: list[Layer] = [GlobalAveragePool()]
    if isinstance(layer, Dense):
        before, after = [Flatten(), Dense(_BEFORE, _CHANNELS, inputs)], []
    try:
        outputs = layer.output_shape((inputs,) if isinstance(layer, Dense) else (inputs, *size))[0]
        return Model(
            name=name,
            summary=f"{text} by itself",
            input_shape=(_CHANNELS, *size),
            classes=_CLASSES,
            layers=(*before, layer, *relu, *after, Dense("after", outputs, _CLASSES)),
            batch_size=2,
            optimizer=Optimizer(),
            parity_batch_size=2,
        )
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from error


def row_of(model: Model) -> str:
    """What the layer that is meant is called in `core.pieces`."""
    names = [piece.name for piece in pieces(model)]
    return names[names.index(_BEFORE) + 1]


def _layer(given: re.Match[str]) -> Layer | None:
    """None where what is written does not make such a layer."""
    size, inputs, outputs = (int(given[part] or 0) for part in ("size", "inputs", "outputs"))
    stride, pad = int(given["stride"] or 0), int(given["pad"] or 0)
    match given["kind"]:
        case "conv" if size and inputs and outputs:
            return Conv(_NAME, inputs, outputs, size, stride or 1, pad, bias=not given["no_bias"])
        case "dense" if inputs and outputs and not size:
            return Dense(_NAME, inputs, outputs)
        case "max_pool" if size and not outputs:
            return MaxPool(size, stride)
        case "average_pool" if size and not outputs:
            return AveragePool(size, stride)
        case "batch_norm" if not size and not outputs:
            return BatchNorm(_NAME, inputs)
    return None
