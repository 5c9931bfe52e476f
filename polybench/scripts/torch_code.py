"""A network in plain PyTorch: a module with a submodule for each layer that has weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

import numpy as np

from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE
from polybench.scripts.network_code import Code
from polybench.scripts.source_text import attributes, escape, literal

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


{state_key}network = Network()
with np.load(Path(__file__).with_suffix(".npz")) as weights:
    network.load_state_dict({{{key}: torch.from_numpy(weights[name]) for name in weights}})
'''
_STATE_KEY = '''# Layers whose names Python or PyTorch uses itself, and their attributes.
ATTRIBUTES = {{
{attributes}
}}


def state_key(name: str) -> str:
    """Return the key in the module's state dictionary of a tensor in the file."""
    layer, *part = name.split(".", 1)
    return ".".join([ATTRIBUTES.get(layer, layer), *part])


'''

_RESERVED = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu",
    "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
    "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook", "register_buffer",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train",
    "training", "type", "xpu", "zero_grad",
})  # fmt: skip
"""Attributes of every `nn.Module`; a test compares them with PyTorch's."""

_LSTM = {"weight": "weight_ih_l0", "recurrent": "weight_hh_l0", "bias": "bias_ih_l0", "recurrent_bias": "bias_hh_l0"}


class Lines(NamedTuple):
    """Lines that a layer adds to the constructor and to the forward pass."""

    setup: Sequence[str]
    forward: Sequence[str]


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the module's code and its state dictionary."""
    modules = list(_modules(model))
    keys, names = attributes(modules), attributes(modules, _is_reserved)
    renamed = {keys[module]: names[module] for module in modules if keys[module] != names[module]}
    lines = list(_sequence(model.layers, model.input_shape, "x", 0, names))
    setup = [f"        {line}" for one in lines for line in one.setup]
    forward = [f"        {line}" for one in lines for line in one.forward]
    network = _NETWORK.format(
        summary=escape(model.summary),
        setup="\n".join(setup),
        forward="\n".join(forward),
        classes=model.classes,
        shape=", ".join(map(str, model.input_shape)),
        state_key=_STATE_KEY.format(attributes=_entries(renamed)) if renamed else "",
        key="state_key(name)" if renamed else "name",
    )
    imports = _IMPORTS.format(name=escape(model.name.partition("~")[0]))
    return Code(imports, network, dict(_state(model, weights, keys)))


def _is_reserved(name: str) -> bool:
    return iskeyword(name) or name in _RESERVED


def _modules(model: Model) -> Iterator[str]:
    """Yield the names of layers; attention is two modules."""
    for layer in spec.walk(model.layers):
        if isinstance(layer, spec.Attention):
            yield from _attention_modules(layer)
        elif isinstance(layer, spec.Named):
            yield layer.name


def _attention_modules(layer: spec.Attention) -> tuple[str, str]:
    """Return the names of its two modules, which no other layer has, because of the space."""
    return f"{layer.name} query_key_value", f"{layer.name} output"


def _entries(renamed: Mapping[str, str]) -> str:
    return "\n".join(f"    {literal(key)}: {literal(name)}," for key, name in renamed.items())


def _sequence(
    layers: Sequence[spec.Layer], shape: spec.Shape, x: str, depth: int, names: Mapping[str, str]
) -> Iterator[Lines]:
    """Yield the lines of layers that change the variable `x`; `names` are the attributes."""
    for layer in layers:
        if isinstance(layer, spec.Residual):
            shortcut = f"shortcut{depth or ''}"
            yield Lines((), (f"{shortcut} = {x}",))
            yield from _sequence(layer.body, shape, x, depth + 1, names)
            yield from _sequence(layer.shortcut, shape, shortcut, depth + 1, names)
            yield Lines((), (f"{x} = {x} + {shortcut}",))
        else:
            yield _layer(layer, shape, x, names)
        shape = layer.output_shape(shape)


def _layer(  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    layer: spec.Layer, shape: spec.Shape, x: str, names: Mapping[str, str]
) -> Lines:
    name = names.get(layer.name, "") if isinstance(layer, spec.Named) else ""
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
            return Lines((), (f"{x} = F.linear({x}, self.{names[tied]}.weight)",))
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
            return Lines((), (f"{x} = F.gelu({x}, approximate={literal(layer.approximate)})",))
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
            return _attention(layer, names, x)
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


def _attention(layer: spec.Attention, names: Mapping[str, str], x: str) -> Lines:
    size = layer.features // layer.heads
    projections, output = (names[module] for module in _attention_modules(layer))
    return Lines(
        (
            f"self.{projections} = nn.Linear({layer.features}, {3 * layer.features}, bias={layer.bias})",
            f"self.{output} = nn.Linear({layer.features}, {layer.features}, bias={layer.bias})",
        ),
        (
            f"parts = self.{projections}({x}).chunk(3, dim=2)",
            f"q, k, v = (part.unflatten(2, ({layer.heads}, {size})).transpose(1, 2) for part in parts)",
            f"heads = F.scaled_dot_product_attention(q, k, v, is_causal={layer.causal})",
            f"{x} = self.{output}(heads.transpose(1, 2).flatten(2))",
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


def _state(model: Model, weights: Mapping[str, Any], keys: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of the module's state dictionary, with these names of modules."""
    for layer in spec.walk(model.layers):
        if not isinstance(layer, spec.Named):
            continue
        name = keys.get(layer.name, "")
        own = {part: weights[f"{layer.name}.{part}"] for part in layer.weight_shapes() | layer.state_shapes()}
        match layer:
            case spec.Positions() | spec.ClassToken():
                yield name, next(iter(own.values()))
            case spec.Attention():
                modules = [keys[module] for module in _attention_modules(layer)]
                for kind in ("weight", "bias") if layer.bias else ("weight",):
                    *projections, output = (own[f"{part}_{kind}"] for part in PROJECTIONS)
                    yield f"{modules[0]}.{kind}", np.concatenate(projections)
                    yield f"{modules[1]}.{kind}", output
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
