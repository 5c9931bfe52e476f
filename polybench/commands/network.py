"""What is in one network, layer by layer, for `polybench models`."""

from __future__ import annotations

import math
from typing import Any

from polybench.core import units
from polybench.core.arithmetic import multiply_adds
from polybench.core.layer_base import Shape
from polybench.core.layers import Layer, Named, passes
from polybench.core.model import Model


def with_layers(model: Model) -> dict[str, Any]:
    """The field `layers`: a row for each, of residual blocks what is in them, then the block."""
    return {
        "layers": [
            _row(layer, before, after) for layer, before, after in passes(model.layers, model.input_shape)
        ]
    }


def table_of(model: Model, row: dict[str, Any]) -> str:
    """The network as text: its input, its layers, its training."""
    from tabulate import tabulate

    lines = [
        (
            layer["name"] or "",
            layer["type"],
            _by(layer["output_shape"]),
            f"{layer['parameters']:,}" if layer["parameters"] else "",
            f"{units.number(layer['multiply_adds'] / 1e6)} M" if layer["multiply_adds"] else "",
        )
        for layer in row["layers"]
    ]
    table = tabulate(
        lines,
        headers=["layer", "type", "puts out", "parameters", "multiply-adds\nforward"],
        colalign=["left", "left", "left", "right", "right"],
        disable_numparse=True,
    )
    known = "" if model.vocabulary is None else f" of {model.vocabulary:,} tokens"
    optimizer = model.optimizer
    return (
        f"{model.name}: {model.summary}\n"
        f"{_by(model.input_shape)}{known} in, {model.classes} classes out\n\n{table}\n\n"
        f"{model.parameters():,} parameters, {units.number(row['training_multiply_adds'] / 1e6)} million"
        f" multiply-adds to train on one {model.unit}\n"
        f"batch {model.batch_size}, {optimizer.name} {optimizer.learning_rate:g},"
        f" weights by {model.initialization.capitalize()}"
    )


def _row(layer: Layer, before: Shape, after: Shape) -> dict[str, Any]:
    return {
        "name": layer.name if isinstance(layer, Named) else None,
        "type": layer.__struct_config__.tag,
        "output_shape": after,
        "parameters": sum(map(math.prod, layer.weight_shapes().values())),
        "multiply_adds": multiply_adds(layer, before, after),
    }


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape))
