"""A network in plain Flux: a `Chain`, whose arrays are those of the canonical file in Flux's layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.padding import Sides
from polybench.networks.source_text import comment, literal
from polybench.scripts.network_code import Code

_IMPORTS = """{name} in plain Flux, with the weights in the file beside this one. Needs the packages Flux and NPZ.

using Flux, NPZ

"""
_NETWORK = """weights = npzread(first(splitext(@__FILE__)) * ".npz")

# The file has (out, in, kernel height, kernel width). Flux has (width, height, in, out), and flips the kernel.
{helpers}
network = Chain(
{body}
)
"""

_HELPERS = {
    "conv": """kernel(name) = reverse(permutedims(weights["$name.weight"], (4, 3, 2, 1)); dims = (1, 2))
""",
    "batch_norm": """batch_norm(name, eps, momentum) = BatchNorm(
    identity, (weights["$name.$part"] for part in ("bias", "weight", "running_mean", "running_variance"))...,
    eps, momentum, true, true, nothing, length(weights["$name.weight"]),
)
""",
    "layer_norm": """# Flux adds the square of its epsilon to the variance.
layer_norm(weight, bias, eps) = LayerNorm(identity, Flux.Scale(weight, bias), sqrt(eps), size(weight), true)
""",
    "group_norm": """group_norm(weight, bias, groups, eps) =
    GroupNorm(groups, identity, bias, weight, nothing, nothing, eps, 0.1f0, true, false, nothing, length(weight))
""",
    "positions": """struct Positions{W}
    weight::W
end
Flux.@layer Positions
(positions::Positions)(x) = x .+ positions.weight[:, 1:size(x, 2)]
""",
    "class_token": """struct ClassToken{W}
    token::W
end
Flux.@layer ClassToken
(layer::ClassToken)(x) = hcat(repeat(layer.token, 1, 1, size(x, 3)), x)
""",
    "tied": """# Multiplies with the table of an embedding, whose tokens are its columns.
struct Table{W}
    weight::W
end
Flux.@layer Table
(table::Table)(x) = reshape(transpose(table.weight) * reshape(x, size(x, 1), :), :, size(x)[2:end]...)
""",
    "attention": """struct SelfAttention{A}
    attention::A
    causal::Bool
end
Flux.@layer SelfAttention
(layer::SelfAttention)(x) = first(layer.attention(x; mask = layer.causal ? Flux.NNlib.make_causal_mask(x) : nothing))

projection(name, part, bias) = Dense(weights["$name.$(part)_weight"], bias ? weights["$name.$(part)_bias"] : false)
function attention(name, heads, causal, bias)
    q, k, v, output = (projection(name, part, bias) for part in ("query", "key", "value", "output"))
    return SelfAttention(MultiHeadAttention(heads, q, k, v, identity, output), causal)
end
""",
    "patches": """to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))
""",
}
_NEEDS = {"patches": "conv"}
_IMAGE_MEAN = """# A mean pool that does not count padding.
image_mean(pool) = x -> pool(x) ./ pool(one.(x[:, :, 1:1, 1:1]))
"""
_INDENT = "    "


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the chain's code; the arrays are the canonical ones."""
    kinds = {str(layer.__struct_config__.tag) for layer in spec.walk(model.layers)}
    kinds |= {_NEEDS[kind] for kind in kinds & set(_NEEDS)}
    tied = {layer.tied for layer in spec.walk(model.layers) if isinstance(layer, spec.Dense)}
    embeddings = [layer.name for layer in spec.walk(model.layers) if isinstance(layer, spec.Embedding)]
    tables = {name: f"table{number or ''}" for number, name in enumerate(name for name in embeddings if name in tied)}
    helpers = [text for kind, text in _HELPERS.items() if kind in kinds or (kind == "tied" and tables)]
    counts = [layer.count_padding for layer in spec.walk(model.layers) if isinstance(layer, spec.AveragePool)]
    helpers += [] if all(counts) else [_IMAGE_MEAN]
    helpers += [f"{table} = permutedims({_array(name, 'weight')})\n" for name, table in tables.items()]
    body = "\n".join(_sequence(model.layers, _INDENT, tables))
    return Code(
        _IMPORTS.format(name=comment(model.name.partition("~")[0])),
        _NETWORK.format(helpers="\n".join(helpers), body=body),
        dict(weights),
    )


def julia_pad(pads: Sides) -> str:
    """Return the padding as Flux and Lux take it: of all sides, of width and height, or of each side."""
    if isinstance(pads.padding, int):
        return str(pads.padding)
    return str(pads.symmetric[::-1] if pads.symmetric else pads.width_first)


def _sequence(layers: Sequence[spec.Layer], indent: str, tables: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a chain's layers, each with a comma at its end."""
    for layer in layers:
        if not isinstance(layer, spec.Residual):
            yield from (f"{indent}{line}," for line in _layer(layer, tables))
            continue
        yield f"{indent}Parallel(+," if layer.shortcut else f"{indent}SkipConnection("
        for branch in (layer.body, layer.shortcut) if layer.shortcut else (layer.body,):
            yield f"{indent}{_INDENT}Chain("
            yield from _sequence(branch, indent + 2 * _INDENT, tables)
            yield f"{indent}{_INDENT}),"
        yield f"{indent})," if layer.shortcut else f"{indent}{_INDENT}+,\n{indent}),"


def _layer(layer: spec.Layer, tables: Mapping[str, str]) -> Sequence[str]:  # noqa: C901, PLR0911, PLR0912
    """Return the elements of the chain for a layer."""
    name = layer.name if isinstance(layer, spec.Named) else ""
    quoted, weight = literal(name), _array(name, "weight")
    bias = _array(name, "bias") if getattr(layer, "bias", True) else "false"
    match layer:
        case spec.Conv():
            options = f"stride = {layer.stride}, pad = {julia_pad(layer.pads)}, groups = {layer.groups}"
            return [f"Conv(kernel({quoted}), {bias}; {options})"]
        case spec.Patches():
            return [f"Conv(kernel({quoted}), {bias}; stride = {layer.size})", "to_sequence"]
        case spec.Dense(tied=str() as tied) if tied in tables:
            return [f"Table({tables[tied]})"]
        case spec.Dense(tied=None):
            return [f"Dense({weight}, {bias})"]
        case spec.BatchNorm():
            return [f"batch_norm({quoted}, {_float32(layer.epsilon)}, {_float32(layer.momentum)})"]
        case spec.LayerNorm():
            return [f"layer_norm({weight}, {bias}, {_float32(layer.epsilon)})"]
        case spec.GroupNorm():
            return [f"group_norm({weight}, {bias}, {layer.groups}, {_float32(layer.epsilon)})"]
        case spec.Dropout():
            return [f"Dropout({layer.rate!r})"]
        case spec.MaxPool() | spec.AveragePool():
            return _pool(layer)
        case spec.GlobalAveragePool():
            return ["GlobalMeanPool()", "Flux.flatten"]
        case spec.ReLU() | spec.ReLU6():
            return [f"x -> {layer.__struct_config__.tag}.(x)"]
        case spec.SiLU():
            return ["x -> swish.(x)"]
        case spec.GELU():
            return [f"x -> Flux.NNlib.{'gelu_tanh' if layer.approximate == 'tanh' else 'gelu_erf'}.(x)"]
        case spec.Flatten():
            return ["Flux.flatten"]
        case spec.MeanOverTime():
            return ["x -> dropdims(Flux.mean(x; dims = 2); dims = 2)"]
        case spec.FirstPosition():
            return ["x -> x[:, 1, :]"]
        case spec.Embedding():
            return [f"Embedding({tables.get(name) or f'permutedims({weight})'})"]
        case spec.Positions():
            return [f"Positions(permutedims({weight}))"]
        case spec.ClassToken():
            return [f"ClassToken({_array(name, 'token')})"]
        case spec.Attention():
            return [f"attention({quoted}, {layer.heads}, {str(layer.causal).lower()}, {str(layer.bias).lower()})"]
        case _:
            raise BadInput(
                f"{name}: polybench writes no Flux code for {layer}: expected --framework torch, keras or jax"
            )


def _pool(layer: spec.MaxPool | spec.AveragePool) -> Sequence[str]:
    if getattr(layer, "count_padding", True):
        return julia_pool(layer, "Flux.NNlib")
    parts = ", ".join(julia_pool(layer, "Flux.NNlib"))
    return [f"image_mean(Chain({parts}))"]


def julia_pool(layer: spec.MaxPool | spec.AveragePool, nnlib: str) -> Sequence[str]:
    """Return a pool of Flux or Lux; a function before it adds other padding on opposite sides, which cuDNN lacks."""
    kind, outside = ("MaxPool", "-Inf32") if isinstance(layer, spec.MaxPool) else ("MeanPool", "0.0f0")
    pool = f"{kind}(({layer.size}, {layer.size}); stride = {layer.stride}"
    if layer.pads.symmetric is None:
        return [f"x -> {nnlib}.pad_constant(x, {layer.pads.width_first}, {outside}; dims = (1, 2))", f"{pool})"]
    return [f"{pool}, pad = {julia_pad(layer.pads)})" if any(layer.pads) else f"{pool})"]


def _array(layer: str, tensor: str) -> str:
    """Return the expression of a layer's tensor."""
    return f"weights[{literal(f'{layer}.{tensor}')}]"


def _float32(value: float) -> str:
    """Return a literal of Float32 in Julia."""
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}f{exponent or 0}"
