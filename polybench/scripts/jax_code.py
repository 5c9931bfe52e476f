"""A network in plain JAX: a function of its weights, images channels first."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.source_text import escape, literal
from polybench.scripts.network_code import Code

_IMPORTS = '''"""{name} in plain JAX, with the weights in the file beside this one."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


'''
_NETWORK = '''{helpers}
def network(w, x, key=None):
    """Logits (batch, ..., {classes}) of inputs (batch, {shape}), and the new running statistics.

    `w` are the weights by name. `key` is a random key for dropout in training; without it, running statistics are used.
    """
    statistics = {{}}
{body}
    return x, statistics


with np.load(Path(__file__).with_suffix(".npz")) as file:
    weights = {{name: jnp.asarray(file[name]) for name in file}}
'''

_HELPERS = {
    "conv": """def conv(x, weight, stride, padding, groups=1):
    return lax.conv_general_dilated(x, weight, (stride, stride), padding, feature_group_count=groups)
""",
    "max_pool": """def max_pool(x, size, stride, padding=((0, 0), (0, 0))):
    windows = (1, 1, size, size), (1, 1, stride, stride), ((0, 0), (0, 0), *padding)
    return lax.reduce_window(x, -jnp.inf, lax.max, *windows)
""",
    "average_pool": """def average_pool(x, size, stride, padding=((0, 0), (0, 0)), count_padding=True):
    windows = (1, 1, size, size), (1, 1, stride, stride), ((0, 0), (0, 0), *padding)
    pixels = jnp.ones((1, 1, *x.shape[2:]))
    counts = size**2 if count_padding else lax.reduce_window(pixels, 0.0, lax.add, *windows)
    return lax.reduce_window(x, 0.0, lax.add, *windows) / counts
""",
    "batch_norm": """def batch_norm(w, name, x, statistics, epsilon, momentum, training):
    axes, shape = (0, *range(2, x.ndim)), (-1,) + (1,) * (x.ndim - 2)
    mean, variance = w[f"{name}.running_mean"], w[f"{name}.running_variance"]
    if training:
        n = x.size // x.shape[1]
        new_mean, new_variance = x.mean(axes), x.var(axes)
        statistics[f"{name}.running_mean"] = (1 - momentum) * mean + momentum * new_mean
        statistics[f"{name}.running_variance"] = (1 - momentum) * variance + momentum * new_variance * n / (n - 1)
        mean, variance = new_mean, new_variance
    normalized = (x - mean.reshape(shape)) / jnp.sqrt(variance.reshape(shape) + epsilon)
    return w[f"{name}.weight"].reshape(shape) * normalized + w[f"{name}.bias"].reshape(shape)
""",
    "layer_norm": """def layer_norm(x, epsilon):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + epsilon)
""",
    "group_norm": """def group_norm(x, groups, epsilon):
    return layer_norm(x.reshape(len(x), groups, -1), epsilon).reshape(x.shape)
""",
    "dropout": """def dropout(key, number, x, rate):
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, number), 1 - rate, x.shape), x / (1 - rate), 0)
""",
    "attention": """def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1)
""",
}
_NEEDS = {"group_norm": "layer_norm", "patches": "conv"}


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the function's code; the arrays are the canonical ones."""
    kinds = {str(layer.__struct_config__.tag) for layer in spec.walk(model.layers)}
    kinds |= {_NEEDS[kind] for kind in kinds & set(_NEEDS)}
    return Code(
        _IMPORTS.format(name=escape(model.name.partition("~")[0])),
        _NETWORK.format(
            helpers="\n\n".join(text for kind, text in _HELPERS.items() if kind in kinds) + "\n",
            classes=model.classes,
            shape=", ".join(map(str, model.input_shape)),
            body="\n".join(f"    {line}" for line in _sequence(model.layers, "x", 0)),
        ),
        dict(weights),
    )


def _sequence(layers: Sequence[spec.Layer], x: str, depth: int) -> Iterator[str]:
    """Yield the lines of layers that change the variable `x`."""
    for layer in layers:
        if isinstance(layer, spec.Residual):
            shortcut = f"shortcut{depth or ''}"
            yield f"{shortcut} = {x}"
            yield from _sequence(layer.body, x, depth + 1)
            yield from _sequence(layer.shortcut, shortcut, depth + 1)
            yield f"{x} = {x} + {shortcut}"
        elif isinstance(layer, spec.Attention):
            yield from _attention(layer, x)
        else:
            yield from (f"{x} = {line}" for line in _layer(layer, x))


def _layer(layer: spec.Layer, x: str) -> Sequence[str]:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    """Return the values that the variable `x` takes."""
    name = layer.name if isinstance(layer, spec.Named) else ""
    weight, bias = _array(name, "weight"), _array(name, "bias")
    match layer:
        case spec.Conv():
            call = f"conv({x}, {weight}, {layer.stride}, {layer.pads.axes}, {layer.groups})"
            return [f"{call} + {bias}[:, None, None]" if layer.bias else call]
        case spec.Patches():
            call = f'conv({x}, {weight}, {layer.size}, "VALID")'
            call = f"{call} + {bias}[:, None, None]" if layer.bias else call
            return [call, f"{x}.reshape(*{x}.shape[:2], -1).transpose(0, 2, 1)"]
        case spec.Dense():
            product = f"{x} @ w[{literal(layer.weight_name)}].T"
            return [f"{product} + {bias}" if layer.bias else product]
        case spec.BatchNorm():
            training = "key is not None"
            numbers = f"{layer.epsilon!r}, {layer.momentum!r}, {training}"
            return [f"batch_norm(w, {literal(name)}, {x}, statistics, {numbers})"]
        case spec.LayerNorm():
            product = f"{weight} * layer_norm({x}, {layer.epsilon!r})"
            return [f"{product} + {bias}" if layer.bias else product]
        case spec.GroupNorm():
            normalized = f"group_norm({x}, {layer.groups}, {layer.epsilon!r})"
            return [f"{weight}[:, None, None] * {normalized} + {bias}[:, None, None]"]
        case spec.Dropout():
            return [f"dropout(key, {_number(name)}, {x}, {layer.rate!r})"]
        case spec.MaxPool() | spec.AveragePool():
            padding = f", {layer.pads.axes}" if any(layer.pads) else ""
            counts = "" if getattr(layer, "count_padding", True) else ", count_padding=False"
            return [f"{layer.__struct_config__.tag}({x}, {layer.size}, {layer.stride}{padding}{counts})"]
        case spec.GlobalAveragePool():
            return [f"{x}.mean((2, 3))"]
        case spec.ReLU() | spec.ReLU6() | spec.SiLU():
            return [f"jax.nn.{layer.__struct_config__.tag}({x})"]
        case spec.GELU():
            return [f"jax.nn.gelu({x}, approximate={layer.approximate == 'tanh'})"]
        case spec.Flatten():
            return [f"{x}.reshape(len({x}), -1)"]
        case spec.MeanOverTime():
            return [f"{x}.mean(1)"]
        case spec.FirstPosition():
            return [f"{x}[:, 0]"]
        case spec.Embedding():
            return [f"{weight}[{x}]"]
        case spec.Positions():
            return [f"{x} + {weight}[: {x}.shape[1]]"]
        case spec.ClassToken():
            token = f"jnp.broadcast_to({_array(name, 'token')}, (len({x}), 1, {x}.shape[2]))"
            return [f"jnp.concatenate([{token}, {x}], axis=1)"]
        case _:
            raise BadInput(f"{name}: polybench writes no JAX code for {layer}: expected --framework torch or keras")


def _array(layer: str, tensor: str) -> str:
    """Return the expression of a layer's tensor."""
    return f"w[{literal(f'{layer}.{tensor}')}]"


def _attention(layer: spec.Attention, x: str) -> Iterator[str]:
    def projection(kind: str, value: str) -> str:
        product = f"{value} @ {_array(layer.name, f'{kind}_weight')}.T"
        return f"{product} + {_array(layer.name, f'{kind}_bias')}" if layer.bias else product

    for variable, kind in zip("qkv", ("query", "key", "value"), strict=True):
        yield f"{variable} = heads({projection(kind, x)}, {layer.heads})"
    yield f"{x} = jax.nn.dot_product_attention(q, k, v, is_causal={layer.causal}).reshape({x}.shape)"
    yield f"{x} = {projection('output', x)}"


def _number(name: str) -> int:
    """Return the number that makes a dropout layer's random key."""
    return zlib.crc32(name.encode())
