"""Layers of a network, for `polybench models`."""

from __future__ import annotations

import math
from typing import Any

from polybench.networks.flops import macs
from polybench.networks.layers import Layer, Named, Shape, layer_shapes
from polybench.networks.model import Model
from polybench.schema import units


def layer_details(model: Model) -> dict[str, Any]:
    """Return the field `layers`: a row per layer; the layers of a residual block precede the block."""
    return {
        "layers": [
            _row(layer, input_shape, output_shape)
            for layer, input_shape, output_shape in layer_shapes(model.layers, model.input_shape)
        ]
    }


def format_network(model: Model, row: dict[str, Any]) -> str:
    """Format a network as text: its input, its layers and its training."""
    from tabulate import tabulate

    lines = [
        (
            layer["name"] or "",
            layer["type"],
            _format_shape(layer["output_shape"]),
            f"{layer['parameters']:,}" if layer["parameters"] else "",
            f"{units.format_number(layer['macs'] / 1e6)} M" if layer["macs"] else "",
        )
        for layer in row["layers"]
    ]
    table = tabulate(
        lines,
        headers=["layer", "type", "output", "parameters", "multiply-adds\nforward"],
        colalign=["left", "left", "left", "right", "right"],
        disable_numparse=True,
    )
    vocabulary = "" if model.vocabulary_size is None else f" of {model.vocabulary_size:,} tokens"
    optimizer = model.optimizer
    return (
        f"{model.name}: {model.summary}\n"
        f"input {_format_shape(model.input_shape)}{vocabulary}, {model.classes} classes\n\n{table}\n\n"
        f"{model.parameters():,} parameters, {units.format_number(row['training_macs'] / 1e6)} million"
        f" multiply-adds to train on one {model.input_kind}\n"
        f"batch {model.batch_size}, {optimizer.name} {optimizer.learning_rate:g},"
        f" {model.initialization.capitalize()} initialization"
    )


def _row(layer: Layer, input_shape: Shape, output_shape: Shape) -> dict[str, Any]:
    return {
        "name": layer.name if isinstance(layer, Named) else None,
        "type": layer.__struct_config__.tag,
        "output_shape": output_shape,
        "parameters": sum(map(math.prod, layer.weight_shapes().values())),
        "macs": macs(layer, input_shape, output_shape),
    }


def _format_shape(shape: Shape) -> str:
    return " x ".join(map(str, shape))
