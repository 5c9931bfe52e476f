"""Writes minimal programs that reproduce one operation of one layer, for an issue in a framework's repository."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polybench.networks.layers import (
    LSTM,
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
)
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.options import Workload
from polybench.scripts import read_script, replace_constants

DATA = "layer.npz"
KINDS = "convolutions, dense layers, LSTMs with sigmoid gates, batch norm, pooling and ReLU"
"""Layers that have programs."""


def write_programs(
    folder: Path, timed_layer: TimedLayer, operation: Operation, tensors: Path, weights: Path, workload: Workload
) -> list[str]:
    """Write `layer.npz` and a program for each framework that has the layer, without its ReLU.

    Args:
        folder: created if necessary.
        timed_layer: the layer.
        operation: the operation; `activation` is the ReLU alone.
        tensors: the layer's file from `worker.layers.write_layer_tensors`.
        weights: weights of the whole network, `.npz`.
        workload: its batch size, which repeated images fill, and its threads.

    Returns:
        The names of the files; empty for a layer without programs.
    """
    layer: Layer = ReLU() if operation == "activation" else timed_layer.layer
    constants: dict[str, object] = {
        "OPERATION": "input gradient" if operation == "activation" else operation, "THREADS": workload.threads,
    }  # fmt: skip
    if isinstance(layer, LSTM):
        programs = _lstm_programs(layer, constants | {"NEEDS_INPUT_GRADIENT": timed_layer.needs_input_gradient})
    else:
        image = len(timed_layer.input_shape) == 3
        programs = {
            script: _program(script, constants, {"LAYER": made})
            for script, expression in _EXPRESSIONS.items()
            if (made := expression(layer, image))
        }
    if programs:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / DATA, **_weights(layer, weights), **_arrays(operation, tensors, workload.batch_size))
    for script, program in programs.items():
        (folder / script).write_text(program, "utf-8")
    return [DATA, *programs] if programs else []


def _lstm_programs(layer: LSTM, constants: Mapping[str, object]) -> dict[str, str]:
    """Return the programs of an LSTM, which has its own: it has more weights, outputs and options."""
    if layer.recurrent_activation != "sigmoid":
        return {}
    both = ("lstm_tf.py", "lstm_flux.jl") if layer.biases == 1 else ()  # only PyTorch supports two biases
    more = {"BIDIRECTIONAL": layer.bidirectional, "SEQUENCE": layer.sequence}
    return {script: _program(script, {**constants, **more}) for script in ("lstm_torch.py", *both)}


def _program(script: str, constants: Mapping[str, object], expressions: Mapping[str, str] | None = None) -> str:
    literal = json.dumps if script.endswith(".jl") else repr
    literals = {name: literal(value) for name, value in constants.items()}
    return replace_constants(read_script(script), literals | dict(expressions or {}))


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
        case "activation":
            return {"x": repeat_batch("z"), "dy": repeat_batch("dy"), "expected": repeat_batch("dz")}
        case "weight gradient":
            expected = times * seen["gradient.weight"]
        case _:
            expected = repeat_batch("z" if operation == "forward" else "dx")
    return {"x": repeat_batch("x"), "dy": repeat_batch("dz"), "expected": expected}


def _pytorch(layer: Layer, image: bool) -> str | None:  # noqa: PLR0911 - one line per type
    match layer:
        case Conv(inputs=inputs, outputs=outputs, kernel=kernel, stride=stride, bias=bias):
            return f"nn.Conv2d({inputs}, {outputs}, {kernel}, stride={stride}, padding={layer.pad}, bias={bias})"
        case Dense(inputs=inputs, outputs=outputs):
            return f"nn.Linear({inputs}, {outputs})"
        case BatchNorm(channels=channels, epsilon=epsilon):
            return f"nn.BatchNorm{'2d' if image else '1d'}({channels}, eps={epsilon})"
        case MaxPool(size=size, stride=stride):
            return f"nn.MaxPool2d({size}, {stride})"
        case AveragePool(size=size, stride=stride):
            return f"nn.AvgPool2d({size}, {stride})"
        case GlobalAveragePool():
            return "nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())"
        case ReLU():
            return "nn.ReLU()"
        case _:
            return None


def _tensorflow(layer: Layer, _: bool) -> str | None:  # noqa: PLR0911
    match layer:
        case Conv(outputs=outputs, kernel=kernel, stride=stride, bias=bias):
            same = stride == 1 and 2 * layer.pad == kernel - 1
            if layer.pad and not same:  # Keras does not have this padding
                return None
            padding = "same" if layer.pad else "valid"
            return f'keras.layers.Conv2D({outputs}, {kernel}, {stride}, "{padding}", use_bias={bias})'
        case Dense(outputs=outputs):
            return f"keras.layers.Dense({outputs})"
        case BatchNorm(epsilon=epsilon):
            return f"keras.layers.BatchNormalization(epsilon={epsilon})"
        case MaxPool(size=size, stride=stride):
            return f"keras.layers.MaxPooling2D({size}, {stride})"
        case AveragePool(size=size, stride=stride):
            return f"keras.layers.AveragePooling2D({size}, {stride})"
        case GlobalAveragePool():
            return "keras.layers.GlobalAveragePooling2D()"
        case ReLU():
            return "keras.layers.ReLU()"
        case _:
            return None


def _flux(layer: Layer, _: bool) -> str | None:  # noqa: PLR0911
    match layer:
        case Conv(inputs=inputs, outputs=outputs, kernel=kernel, stride=stride):
            bias = "true" if layer.bias else "false"
            shape = f"({kernel}, {kernel}), {inputs} => {outputs}"
            return f"Conv({shape}; stride = {stride}, pad = {layer.pad}, bias = {bias})"
        case Dense(inputs=inputs, outputs=outputs):
            return f"Dense({inputs} => {outputs})"
        case BatchNorm(channels=channels, epsilon=epsilon):
            return f"BatchNorm({channels}; eps = {epsilon}f0)"
        case MaxPool(size=size, stride=stride):
            return f"MaxPool(({size}, {size}); stride = {stride})"
        case AveragePool(size=size, stride=stride):
            return f"MeanPool(({size}, {size}); stride = {stride})"
        case GlobalAveragePool():
            return "Chain(GlobalMeanPool(), Flux.flatten)"
        case ReLU():
            return "x -> relu.(x)"
        case _:
            return None


_EXPRESSIONS: dict[str, Callable[[Layer, bool], str | None]] = {
    "layer_torch.py": _pytorch,
    "layer_tf.py": _tensorflow,
    "layer_flux.jl": _flux,
}
