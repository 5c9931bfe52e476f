"""Writes minimal programs that reproduce one operation of one layer, for an issue in a framework's repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polybench.engines.flux.network_code import julia_pad
from polybench.engines.shared.keras_layout import keras_padding
from polybench.engines.torch.network_code import own_padding
from polybench.networks.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Named,
    Operation,
    ReLU,
    Shape,
)
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.options import Workload
from polybench.scripts import render

DATA = "layer.npz"
KINDS = "convolutions, dense layers, batch norm, pooling and ReLU"
"""Layers that have programs."""


_TEMPLATES = ("layer_torch.py", "layer_tf.py", "layer_flux.jl")
_EXPRESSIONS: dict[type[Layer], tuple[str, str, str]] = {
    Conv: (
        "nn.Conv2d({0.inputs}, {0.outputs}, {0.kernel},"
        " stride={0.stride}, padding={padding}, groups={0.groups}, bias={0.bias})",
        'keras.layers.Conv2D({0.outputs}, {0.kernel}, {0.stride}, "{padding}", groups={0.groups}, use_bias={0.bias})',
        "Conv(({0.kernel}, {0.kernel}), {0.inputs} => {0.outputs};"
        " stride = {0.stride}, pad = {padding}, groups = {0.groups}, bias = {bias})",
    ),
    Dense: (
        "nn.Linear({0.inputs}, {0.outputs}, bias={0.bias})",
        "keras.layers.Dense({0.outputs}, use_bias={0.bias})",
        "Dense({0.inputs} => {0.outputs}; bias = {bias})",
    ),
    BatchNorm: (
        "nn.BatchNorm{dimensions}d({0.channels}, eps={0.epsilon})",
        "keras.layers.BatchNormalization(epsilon={0.epsilon})",
        "BatchNorm({0.channels}; eps = {0.epsilon}f0)",
    ),
    MaxPool: (
        "nn.MaxPool2d({0.size}, {0.stride}, {padding})",
        'keras.layers.MaxPooling2D({0.size}, {0.stride}, "{padding}")',
        "MaxPool(({0.size}, {0.size}); stride = {0.stride}, pad = {padding})",
    ),
    AveragePool: (
        "nn.AvgPool2d({0.size}, {0.stride}, {padding}, count_include_pad={0.count_padding})",
        'keras.layers.AveragePooling2D({0.size}, {0.stride}, "{padding}")',
        "MeanPool(({0.size}, {0.size}); stride = {0.stride}, pad = {padding})",
    ),
    GlobalAveragePool: (
        "nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())",
        "keras.layers.GlobalAveragePooling2D()",
        "Chain(GlobalMeanPool(), Flux.flatten)",
    ),
    ReLU: ("nn.ReLU()", "keras.layers.ReLU()", "x -> relu.(x)"),
}
"""Expressions of the layer `{0}` in PyTorch, TensorFlow and Flux, for `_TEMPLATES`."""


def write_programs(
    folder: Path, timed_layer: TimedLayer, operation: Operation, tensors: Path, weights: Path, workload: Workload
) -> list[str]:
    """Write `layer.npz` and a program for each framework that has the layer, without its ReLU; return the files' names.

    `relu gradient` is that of the ReLU alone. `tensors` is the layer's file from `worker.layers.write_layer_tensors`,
    whose images repeat to fill the batch; `weights` has those of the whole network. A layer without programs gets no
    files.
    """
    layer: Layer = ReLU() if operation == "relu gradient" else timed_layer.layer
    constants: dict[str, object] = {
        "OPERATION": "input gradient" if operation == "relu gradient" else operation, "THREADS": workload.threads,
    }  # fmt: skip
    expressions = layer_expressions(layer, timed_layer.input_shape)
    programs = {template: render(template, constants, LAYER=code) for template, code in expressions.items()}
    if programs:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / DATA, **_weights(layer, weights), **_arrays(operation, tensors, workload.batch_size))
    for file, program in programs.items():
        (folder / file).write_text(program, "utf-8")
    return [DATA, *programs] if programs else []


def layer_expressions(layer: Layer, shape: Shape) -> dict[str, str]:
    """Return the layer in each library by template, for inputs of `shape`.

    Empty if it has no programs; without a library that has no single layer with this padding.
    """
    if type(layer) not in _EXPRESSIONS:
        return {}
    details: dict[str, object] = {"dimensions": len(shape) - 1 or 1}
    if isinstance(layer, Conv | Dense):
        details["bias"] = str(layer.bias).lower()
    paddings = _paddings(layer, shape) if isinstance(layer, Conv | MaxPool | AveragePool) else ("",) * len(_TEMPLATES)
    expressions = zip(_TEMPLATES, _EXPRESSIONS[type(layer)], paddings, strict=True)
    return {
        template: expression.format(layer, padding=padding, **details)
        for template, expression, padding in expressions
        if padding is not None
    }


def _paddings(layer: Conv | MaxPool | AveragePool, shape: Shape) -> tuple[str | None, ...]:
    """Return the padding in each library; None if its layer has no such padding."""
    in_flux = isinstance(layer, Conv) or (layer.pads.symmetric and getattr(layer, "count_padding", True))
    return own_padding(layer), keras_padding(layer, shape), julia_pad(layer.pads) if in_flux else None


def _weights(layer: Layer, weights: Path) -> dict[str, Any]:
    if not isinstance(layer, Named):
        return {}
    with np.load(weights) as file:
        return {name: file[f"{layer.name}.{name}"] for name in layer.weight_shapes()}


def _arrays(operation: Operation, tensors: Path, batch_size: int) -> dict[str, Any]:
    """Return input, output gradient and expected result, in the canonical layout and C order."""
    with np.load(tensors) as file:
        seen = dict(file)
    times = max(1, batch_size // len(seen["x"]))

    def repeat_batch(name: str) -> NDArray[np.float32]:
        return np.concatenate([seen[name]] * times)

    match operation:
        case "relu gradient":
            return {"x": repeat_batch("z"), "dy": repeat_batch("dy"), "expected": repeat_batch("dz")}
        case "weight gradient":
            expected = times * seen["gradient.weight"]
        case _:
            expected = repeat_batch("z" if operation == "forward" else "dx")
    return {"x": repeat_batch("x"), "dy": repeat_batch("dz"), "expected": expected}
