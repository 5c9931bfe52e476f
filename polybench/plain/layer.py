"""Minimal programs that show one part of one layer, for an issue of a framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polybench.core.document.layers import Part
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Named,
    ReLU,
)
from polybench.core.pieces import Piece
from polybench.core.sequence_layers import LSTM
from polybench.core.spec import Workload
from polybench.plain import text_of, with_constants

DATA = "layer.npz"
KINDS = "convolutions, dense layers, LSTMs with sigmoid gates, batch norm, pooling and ReLU"
"""What programs are written for."""


def write_programs(
    folder: Path, piece: Piece, part: Part, tensors: Path, weights: Path, workload: Workload
) -> list[str]:
    """Write `layer.npz` and a program for each framework that has the layer, without its ReLU.

    Args:
        folder: made if it is not there.
        piece: the layer.
        part: of it; `activation` is the ReLU by itself.
        tensors: what `worker.layers.write_layers` wrote of it.
        weights: all of its network, `.npz`.
        workload: its batch size, up to which images are repeated whole times, and its threads.

    Returns:
        The names of the files; none for a layer that no program is written for.
    """
    layer: Layer = ReLU() if part == "activation" else piece.layer
    constants: dict[str, object] = {
        "PART": "data gradient" if part == "activation" else part, "THREADS": workload.threads,
    }  # fmt: skip
    if isinstance(layer, LSTM):
        programs = _of_lstm(layer, constants | {"WANTS_DATA_GRADIENT": piece.wants_data_gradient})
    else:
        image = len(piece.input_shape) == 3
        programs = {
            script: _program(script, constants, {"LAYER": made})
            for script, expression in _EXPRESSIONS.items()
            if (made := expression(layer, image))
        }
    if programs:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / DATA, **_weights(layer, weights), **_arrays(part, tensors, workload.batch_size))
    for script, program in programs.items():
        (folder / script).write_text(program, "utf-8")
    return [DATA, *programs] if programs else []


def _of_lstm(layer: LSTM, constants: Mapping[str, object]) -> dict[str, str]:
    """Programs of their own by name: an LSTM has more weights, more than one output, and ways to read."""
    if layer.recurrent_activation != "sigmoid":
        return {}
    both = ("lstm_tensorflow.py", "lstm_flux.jl") if layer.biases == 1 else ()  # PyTorch alone has two
    more = {"BIDIRECTIONAL": layer.bidirectional, "SEQUENCE": layer.sequence}
    return {script: _program(script, {**constants, **more}) for script in ("lstm_pytorch.py", *both)}


def _program(
    script: str, constants: Mapping[str, object], expressions: Mapping[str, str] | None = None
) -> str:
    literal = json.dumps if script.endswith(".jl") else repr
    literals = {name: literal(value) for name, value in constants.items()}
    return with_constants(text_of(script), literals | dict(expressions or {}))


def _weights(layer: Layer, weights: Path) -> dict[str, Any]:
    if not isinstance(layer, Named):
        return {}
    with np.load(weights) as file:
        return {part: file[f"{layer.name}.{part}"] for part in layer.weight_shapes()}


def _arrays(part: Part, tensors: Path, batch_size: int) -> dict[str, Any]:
    """Input, output gradient and what is expected: canonical, C order."""
    with np.load(tensors) as file:
        seen = dict(file)
    times = max(1, batch_size // len(seen["x"]))

    def repeated(name: str) -> NDArray[np.float32]:
        return np.concatenate([seen[name]] * times)

    match part:
        case "activation":
            return {"x": repeated("z"), "dy": repeated("dy"), "expected": repeated("dz")}
        case "weight gradient":
            expected = times * seen["gradient.weight"]
        case _:
            expected = repeated("z" if part == "forward" else "dx")
    return {"x": repeated("x"), "dy": repeated("dz"), "expected": expected}


def _pytorch(layer: Layer, image: bool) -> str | None:  # noqa: PLR0911 - a line for each kind
    match layer:
        case Conv(inputs=inputs, outputs=outputs, kernel=kernel, stride=stride, bias=bias):
            return (
                f"nn.Conv2d({inputs}, {outputs}, {kernel}, stride={stride}, padding={layer.pad}, bias={bias})"
            )
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
            if layer.pad and not same:  # Keras has no such padding
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
    "layer_pytorch.py": _pytorch,
    "layer_tensorflow.py": _tensorflow,
    "layer_flux.jl": _flux,
}
