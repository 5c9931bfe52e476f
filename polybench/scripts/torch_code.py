"""A network in plain PyTorch: a module with a submodule for each layer that has weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE
from polybench.scripts.network_code import Code, identifier

_IMPORTS = '''"""{name} in plain PyTorch, with the weights in the file beside this one."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


'''
_NETWORK = '''class Network(nn.Module):
    """{summary}."""

    def __init__(self) -> None:
        super().__init__()
{setup}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, ..., {classes}) of inputs (batch, {shape})."""
{forward}
        return x


network = Network()
with np.load(Path(__file__).with_suffix(".npz")) as weights:
    network.load_state_dict({{name: torch.from_numpy(weights[name]) for name in weights}})
'''

_LSTM = {"weight": "weight_ih_l0", "recurrent": "weight_hh_l0", "bias": "bias_ih_l0", "recurrent_bias": "bias_hh_l0"}


class Lines(NamedTuple):
    """Lines that a layer adds to the constructor and to the forward pass."""

    setup: Sequence[str]
    forward: Sequence[str]


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the module's code and its state dictionary."""
    lines = list(_sequence(model.layers, model.input_shape, "x", 0))
    setup = [f"        {line}" for one in lines for line in one.setup]
    forward = [f"        {line}" for one in lines for line in one.forward]
    network = _NETWORK.format(
        summary=model.summary,
        setup="\n".join(setup),
        forward="\n".join(forward),
        classes=model.classes,
        shape=", ".join(map(str, model.input_shape)),
    )
    return Code(_IMPORTS.format(name=model.name.partition("~")[0]), network, dict(_state(model, weights)))


def _sequence(layers: Sequence[spec.Layer], shape: spec.Shape, x: str, depth: int) -> Iterator[Lines]:
    """Yield the lines of layers that change the variable `x`."""
    for layer in layers:
        if isinstance(layer, spec.Residual):
            shortcut = f"shortcut{depth or ''}"
            yield Lines((), (f"{shortcut} = {x}",))
            yield from _sequence(layer.body, shape, x, depth + 1)
            yield from _sequence(layer.shortcut, shape, shortcut, depth + 1)
            yield Lines((), (f"{x} = {x} + {shortcut}",))
        else:
            yield _layer(layer, shape, x)
        shape = layer.output_shape(shape)


def _layer(layer: spec.Layer, shape: spec.Shape, x: str) -> Lines:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    name = identifier(layer.name) if isinstance(layer, spec.Named) else ""
    call = (f"{x} = self.{name}({x})",)
    match layer:
        case spec.Conv():
            padding = own_padding(layer)
            options = f"padding={padding or 0}, groups={layer.groups}, bias={layer.bias}"
            made = f"nn.Conv2d({layer.inputs}, {layer.outputs}, {layer.kernel}, {layer.stride}, {options})"
            padded = x if padding else f"F.pad({x}, {layer.pads.width_first})"
            return Lines((f"self.{name} = {made}",), (f"{x} = self.{name}({padded})",))
        case spec.Patches():
            made = f"nn.Conv2d({layer.inputs}, {layer.outputs}, {layer.size}, {layer.size}, bias={layer.bias})"
            return Lines((f"self.{name} = {made}",), (f"{x} = self.{name}({x}).flatten(2).transpose(1, 2)",))
        case spec.Dense(tied=str() as tied):
            return Lines((), (f"{x} = F.linear({x}, self.{identifier(tied)}.weight)",))
        case spec.Dense():
            made = f"nn.Linear({layer.inputs}, {layer.outputs}, bias={layer.bias})"
            return Lines((f"self.{name} = {made}",), call)
        case spec.BatchNorm():
            kind = "BatchNorm1d" if len(shape) == 1 else "BatchNorm2d"
            made = f"nn.{kind}({layer.channels}, eps={layer.epsilon!r}, momentum={layer.momentum!r})"
            return Lines((f"self.{name} = {made}",), call)
        case spec.LayerNorm():
            made = f"nn.LayerNorm({layer.features}, eps={layer.epsilon!r}, bias={layer.bias})"
            return Lines((f"self.{name} = {made}",), call)
        case spec.GroupNorm():
            made = f"nn.GroupNorm({layer.groups}, {layer.channels}, eps={layer.epsilon!r})"
            return Lines((f"self.{name} = {made}",), call)
        case spec.Dropout():
            return Lines((f"self.{name} = nn.Dropout({layer.rate!r})",), call)
        case spec.MaxPool() | spec.AveragePool():
            return Lines((), (f"{x} = {_pool(layer, x)}",))
        case spec.GlobalAveragePool():
            return Lines((), (f"{x} = {x}.mean((2, 3))",))
        case spec.ReLU() | spec.ReLU6() | spec.SiLU():
            return Lines((), (f"{x} = F.{layer.__struct_config__.tag}({x})",))
        case spec.GELU():
            return Lines((), (f'{x} = F.gelu({x}, approximate="{layer.approximate}")',))
        case spec.Flatten():
            return Lines((), (f"{x} = {x}.flatten(1)",))
        case spec.MeanOverTime():
            return Lines((), (f"{x} = {x}.mean(1)",))
        case spec.FirstPosition():
            return Lines((), (f"{x} = {x}[:, 0]",))
        case spec.Embedding():
            return Lines((f"self.{name} = nn.Embedding({layer.vocabulary}, {layer.features})",), call)
        case spec.Positions():
            made = f"nn.Parameter(torch.zeros({layer.length}, {layer.features}))"
            return Lines((f"self.{name} = {made}",), (f"{x} = {x} + self.{name}[: {x}.shape[1]]",))
        case spec.ClassToken():
            token = f"self.{name}.expand(len({x}), 1, -1)"
            made = f"nn.Parameter(torch.zeros({layer.features}))"
            return Lines((f"self.{name} = {made}",), (f"{x} = torch.cat([{token}, {x}], dim=1)",))
        case spec.Attention():
            return _attention(layer, name, x)
        case spec.LSTM():
            return _lstm(layer, name, x)
        case _:
            raise BadInput(f"PyTorch: no plain code for a layer of type {layer.__struct_config__.tag}")


def own_padding(layer: spec.Conv | spec.MaxPool | spec.AveragePool) -> str | None:
    """Return the padding of PyTorch's layer; None if it has no such padding, which `F.pad` adds."""
    if layer.pads.symmetric is None or (not isinstance(layer, spec.Conv) and max(layer.pads) > layer.size // 2):
        return None
    return str(layer.pads.padding if isinstance(layer.pads.padding, int) else layer.pads.symmetric)


def _pool(layer: spec.MaxPool | spec.AveragePool, x: str) -> str:
    name, window = ("max" if isinstance(layer, spec.MaxPool) else "avg"), f"{layer.size}, {layer.stride}"
    counts, padding = getattr(layer, "count_padding", True), own_padding(layer)
    if padding is not None:
        options = f", {padding}" if any(layer.pads) else ""
        return f"F.{name}_pool2d({x}, {window}{options}{'' if counts else ', count_include_pad=False'})"
    value = ", value=-torch.inf" if isinstance(layer, spec.MaxPool) else ""
    pooled = f"F.{name}_pool2d(F.pad({{}}, {layer.pads.width_first}{value}), {window})"
    return pooled.format(x) if counts else f"{pooled.format(x)} / {pooled.format(f'torch.ones_like({x}[:1, :1])')}"


def _attention(layer: spec.Attention, name: str, x: str) -> Lines:
    size = layer.features // layer.heads
    return Lines(
        (
            f"self.{name}_query_key_value = nn.Linear({layer.features}, {3 * layer.features}, bias={layer.bias})",
            f"self.{name}_output = nn.Linear({layer.features}, {layer.features}, bias={layer.bias})",
        ),
        (
            f"parts = self.{name}_query_key_value({x}).chunk(3, dim=2)",
            f"q, k, v = (part.unflatten(2, ({layer.heads}, {size})).transpose(1, 2) for part in parts)",
            f"heads = F.scaled_dot_product_attention(q, k, v, is_causal={layer.causal})",
            f"{x} = self.{name}_output(heads.transpose(1, 2).flatten(2))",
        ),
    )


def _lstm(layer: spec.LSTM, name: str, x: str) -> Lines:
    if layer.recurrent_activation != "sigmoid":
        raise BadInput(f"{layer.name}: nn.LSTM has no {layer.recurrent_activation}: expected sigmoid")
    made = f"nn.LSTM({layer.inputs}, {layer.units}, batch_first=True, bidirectional={layer.bidirectional})"
    frozen = [
        f"self.{name}.{_lstm_key(direction + 'recurrent_bias')}.requires_grad_(False)  # Keras has one bias"
        for direction in layer.directions
        if layer.biases == 1
    ]
    output = f"{x}, _ = self.{name}({x})"
    if not layer.sequence:
        output = f"_, ({x}, _) = self.{name}({x})"
        return Lines((f"self.{name} = {made}", *frozen), (output, f"{x} = {x}.transpose(0, 1).flatten(1)"))
    return Lines((f"self.{name} = {made}", *frozen), (output,))


def _lstm_key(tensor: str) -> str:
    return _LSTM[tensor.removeprefix(REVERSE)] + ("_reverse" if tensor.startswith(REVERSE) else "")


def _state(model: Model, weights: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of the module's state dictionary."""
    for layer in spec.walk(model.layers):
        if not isinstance(layer, spec.Named):
            continue
        name = identifier(layer.name)
        own = {part: weights[f"{layer.name}.{part}"] for part in layer.weight_shapes() | layer.state_shapes()}
        match layer:
            case spec.Positions() | spec.ClassToken():
                yield name, next(iter(own.values()))
            case spec.Attention():
                for kind in ("weight", "bias") if layer.bias else ("weight",):
                    *projections, output = (own[f"{part}_{kind}"] for part in PROJECTIONS)
                    yield f"{name}_query_key_value.{kind}", np.concatenate(projections)
                    yield f"{name}_output.{kind}", output
            case spec.LSTM():
                if layer.biases == 1:
                    own |= {
                        f"{direction}recurrent_bias": np.zeros_like(own[f"{direction}bias"])
                        for direction in layer.directions
                    }
                yield from ((f"{name}.{_lstm_key(part)}", value) for part, value in own.items())
            case spec.BatchNorm():
                own["running_var"] = own.pop("running_variance")
                own["num_batches_tracked"] = np.array(0)
                yield from ((f"{name}.{part}", value) for part, value in own.items())
            case _:
                yield from ((f"{name}.{part}", value) for part, value in own.items())
