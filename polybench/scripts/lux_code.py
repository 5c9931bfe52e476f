"""A network in plain Lux: a `Chain`, its parameters from the canonical file, and its states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from polybench.engines.flux.network_code import julia_pad
from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.sequence_layers import PROJECTIONS
from polybench.networks.source_text import comment, literal
from polybench.scripts.network_code import Code

_IMPORTS = """{name} in plain Lux, with the weights in the file beside this one. Needs the packages Lux and NPZ.

using Lux, NPZ, Random
using Lux: NNlib

"""
_NETWORK = """weights = npzread(first(splitext(@__FILE__)) * ".npz")

# The file has (out, in, kernel height, kernel width). Lux has (width, height, in, out), and flips the kernel.
kernel(name) = reverse(permutedims(weights["$name.weight"], (4, 3, 2, 1)); dims = (1, 2))
{helpers}
network = Chain(
{body}
)

# Returns the tree with another array at a path such as (:layer_1, :weight).
with(tree, (path, array)::Pair) = with(tree, array, path...)
with(tree, array, key) = merge(tree, NamedTuple{{(key,)}}((array,)))
with(tree, array, key, rest...) = with(tree, with(tree[key], array, rest...), key)

parameters, states = Lux.setup(Random.default_rng(), network)
parameters = foldl(with, [
{parameters}
]; init = parameters)
states = foldl(with, Pair[
{states}
]; init = states)
"""
_HELPERS = {
    "positions": """struct Positions <: Lux.AbstractLuxLayer
    size::NTuple{2, Int}
end
Lux.initialparameters(::Random.AbstractRNG, positions::Positions) = (; table = zeros(Float32, positions.size))
(::Positions)(x, parameters, states) = x .+ parameters.table[:, 1:size(x, 2)], states
""",
    "class_token": """struct ClassToken <: Lux.AbstractLuxLayer
    features::Int
end
Lux.initialparameters(::Random.AbstractRNG, layer::ClassToken) = (; token = zeros(Float32, layer.features))
(::ClassToken)(x, parameters, states) = hcat(repeat(parameters.token, 1, 1, size(x, 3)), x), states
""",
    "patches": """to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))
""",
}
_INDENT = "    "


class _Part(NamedTuple):
    """A layer of Lux, and the Julia expressions of its parameters and states by their names in Lux's tree."""

    expression: str
    parameters: Mapping[str, str] = {}
    states: Mapping[str, str] = {}


class _Tree:
    """The lines of the chain, and the arrays in its trees."""

    def __init__(self) -> None:
        self.parameters: list[str] = []
        self.states: list[str] = []

    def chain(self, layers: Sequence[spec.Layer], indent: str, path: tuple[str, ...] = ()) -> Iterator[str]:
        """Yield the lines of the layers, each with a comma at its end."""
        number = 0
        for layer in layers:
            if isinstance(layer, spec.Residual):
                number += 1
                yield from self._residual(layer, indent, (*path, f"layer_{number}"))
                continue
            for part in _parts(layer):
                number += 1
                here = (*path, f"layer_{number}")
                yield f"{indent}{part.expression},"
                self.parameters += [_entry(here, name, array) for name, array in part.parameters.items()]
                self.states += [_entry(here, name, array) for name, array in part.states.items()]

    def _residual(self, block: spec.Residual, indent: str, path: tuple[str, ...]) -> Iterator[str]:
        branches = (block.body, block.shortcut) if block.shortcut else (block.body,)
        yield f"{indent}Parallel(+," if block.shortcut else f"{indent}SkipConnection("
        for number, branch in enumerate(branches, 1):
            yield f"{indent}{_INDENT}Chain("
            here = (*path, f"layer_{number}") if block.shortcut else path
            yield from self.chain(branch, indent + 2 * _INDENT, here)
            yield f"{indent}{_INDENT}),"
        yield f"{indent})," if block.shortcut else f"{indent}{_INDENT}+,\n{indent}),"


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the code of chain, parameters and states; the arrays are the canonical ones."""
    kinds = {str(layer.__struct_config__.tag) for layer in spec.walk(model.layers)}
    tree = _Tree()
    body = "\n".join(tree.chain(model.layers, _INDENT))
    return Code(
        _IMPORTS.format(name=comment(model.name.partition("~")[0])),
        _NETWORK.format(
            helpers="\n".join(text for kind, text in _HELPERS.items() if kind in kinds),
            body=body,
            parameters="\n".join(tree.parameters),
            states="\n".join(tree.states),
        ),
        dict(weights),
    )


def _entry(path: tuple[str, ...], name: str, array: str) -> str:
    keys = ", ".join(f":{key}" for key in (*path, *name.split(".")))
    return f"{_INDENT}({keys}) => {array},"


def _parts(layer: spec.Layer) -> Sequence[_Part]:  # noqa: C901, PLR0911, PLR0912
    name = layer.name if isinstance(layer, spec.Named) else ""

    def array(tensor: str) -> str:
        return f"weights[{literal(f'{name}.{tensor}')}]"

    has_bias = getattr(layer, "bias", True)
    use_bias = f"use_bias = {str(has_bias).lower()}"
    bias = {"bias": array("bias")} if has_bias else {}
    kernel = {"weight": f"kernel({literal(name)})"} | bias
    match layer:
        case spec.Conv():
            size, inputs = f"({layer.kernel}, {layer.kernel})", f"{layer.inputs} => {layer.outputs}"
            options = f"stride = {layer.stride}, pad = {julia_pad(layer.pads)}"
            return [_Part(f"Conv({size}, {inputs}; {options}, groups = {layer.groups}, {use_bias})", kernel)]
        case spec.Patches():
            size = f"({layer.size}, {layer.size})"
            conv = f"Conv({size}, {layer.inputs} => {layer.outputs}; stride = {layer.size}, {use_bias})"
            return [_Part(conv, kernel), _Part("to_sequence")]
        case spec.Dense(tied=None):
            return [_Part(f"Dense({layer.inputs} => {layer.outputs}; {use_bias})", {"weight": array("weight")} | bias)]
        case spec.BatchNorm():
            options = f"epsilon = {_float32(layer.epsilon)}, momentum = {_float32(layer.momentum)}"
            statistics = {"running_mean": array("running_mean"), "running_var": array("running_variance")}
            affine = {"scale": array("weight"), "bias": array("bias")}
            return [_Part(f"BatchNorm({layer.channels}; {options})", affine, statistics)]
        case spec.LayerNorm():
            # Lux's own affine parameters need the shape of the whole input.
            options = f"affine = false, dims = 1, epsilon = {_float32(layer.epsilon)}"
            scale = _Part(f"Scale({layer.features}; {use_bias})", {"weight": array("weight")} | bias)
            return [_Part(f"LayerNorm(({layer.features},); {options})"), scale]
        case spec.GroupNorm():
            norm = f"GroupNorm({layer.channels}, {layer.groups}; epsilon = {_float32(layer.epsilon)})"
            return [_Part(norm, {"scale": array("weight"), "bias": array("bias")})]
        case spec.Dropout():
            return [_Part(f"Dropout({_float32(layer.rate)})")]
        case spec.MaxPool() | spec.AveragePool(count_padding=True):
            return [_Part(part) for part in _pool(layer)]
        case spec.GlobalAveragePool():
            return [_Part("GlobalMeanPool()"), _Part("FlattenLayer()")]
        case spec.ReLU() | spec.ReLU6():
            return [_Part(f"x -> NNlib.{layer.__struct_config__.tag}.(x)")]
        case spec.SiLU():
            return [_Part("x -> NNlib.swish.(x)")]
        case spec.GELU():
            return [_Part(f"x -> NNlib.{'gelu_tanh' if layer.approximate == 'tanh' else 'gelu_erf'}.(x)")]
        case spec.Flatten():
            return [_Part("FlattenLayer()")]
        case spec.MeanOverTime():
            return [_Part("x -> dropdims(sum(x; dims = 2); dims = 2) ./ size(x, 2)")]
        case spec.FirstPosition():
            return [_Part("x -> x[:, 1, :]")]
        case spec.Embedding():
            table = {"weight": f"permutedims({array('weight')})"}
            return [_Part(f"Embedding({layer.vocabulary} => {layer.features})", table)]
        case spec.Positions():
            table = {"table": f"permutedims({array('weight')})"}
            return [_Part(f"Positions(({layer.features}, {layer.length}))", table)]
        case spec.ClassToken():
            return [_Part(f"ClassToken({layer.features})", {"token": array("token")})]
        case spec.Attention():
            options = f"nheads = {layer.heads}, dense_kwargs = (; {use_bias})"
            causal = ", is_causal = true" if layer.causal else ""
            kinds = ("weight", "bias") if layer.bias else ("weight",)
            projections = {
                f"{lux}_proj.{kind}": array(f"{ours}_{kind}")
                for lux, ours in zip(("q", "k", "v", "out"), PROJECTIONS, strict=True)
                for kind in kinds
            }
            return [_Part(f"MultiHeadAttention({layer.features}; {options}{causal})", projections), _Part("first")]
        case _:
            reasons = {spec.Dense: "tied weights", spec.AveragePool: "an average pool that does not count its padding"}
            what = reasons.get(type(layer), type(layer).__name__)
            raise BadInput(f"{name}: polybench writes no Lux code for {what}: expected --framework flux or torch")


def _pool(layer: spec.MaxPool | spec.AveragePool) -> Sequence[str]:
    """Return a pool; a function before it adds other padding on opposite sides, which cuDNN lacks."""
    kind, outside = ("MaxPool", "-Inf32") if isinstance(layer, spec.MaxPool) else ("MeanPool", "0.0f0")
    pool = f"{kind}(({layer.size}, {layer.size}); stride = {layer.stride}"
    if layer.pads.symmetric is None:
        return [f"x -> NNlib.pad_constant(x, {layer.pads.width_first}, {outside}; dims = (1, 2))", f"{pool})"]
    return [f"{pool}, pad = {julia_pad(layer.pads)})" if any(layer.pads) else f"{pool})"]


def _float32(value: float) -> str:
    """Return a literal of Float32 in Julia."""
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}f{exponent or 0}"
