"""Writes the layers of a network in Lux, as `engines/flux/layer_code.py` those of Flux.

ADD A LAYER: its case in `LuxLayerCode.elements` if Lux's constructor differs, its type if Lux has none, and its arrays
in `_ARRAYS` and `LuxLayerCode.arrays`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polybench.engines.flux.chain import Element, Entry, Scope
from polybench.engines.flux.julia_text import Call, text
from polybench.engines.flux.layer_code import LayerCode, attention_arrays, named_arrays
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec

_ARRAYS: Mapping[type[spec.Layer], str] = {
    spec.Conv: "conv",
    spec.Patches: "conv",
    spec.Dense: "dense",
    spec.BatchNorm: "batch_norm",
    spec.LayerNorm: "layer_norm",
    spec.GroupNorm: "group_norm",
    spec.Embedding: "table",
    spec.Positions: "table",
    spec.ClassToken: "token",
    spec.Attention: "attention",
}
"""The first word of the function of a layer's arrays, `conv_tensors`."""

_POSITIONS = """# Adds a column of a table to each position.
struct Positions <: AbstractLuxLayer
    features::Int
    length::Int
end

function Lux.initialparameters(::AbstractRNG, layer::Positions)
    return (; weight = zeros32(layer.features, layer.length))
end

(::Positions)(x, ps, st) = x .+ ps.weight[:, 1:size(x, 2)], st"""
_CLASS_TOKEN = """# Adds a position before the first.
struct ClassToken <: AbstractLuxLayer
    features::Int
end

function Lux.initialparameters(::AbstractRNG, layer::ClassToken)
    return (; token = zeros32(layer.features))
end

(::ClassToken)(x, ps, st) = hcat(ps.token .* ones(DTYPE, 1, 1, size(x, 3)), x), st"""
_UNEMBEDDING = """# Multiplies with the table of another layer, whose rows are its columns.
struct Unembedding <: AbstractLuxLayer
    features::Int
    outputs::Int
end

function Lux.initialparameters(::AbstractRNG, layer::Unembedding)
    return (; weight = zeros32(layer.features, layer.outputs))
end

function (::Unembedding)(x, ps, st)
    y = transpose(ps.weight) * reshape(x, size(x, 1), :)
    return reshape(y, :, size(x)[2:end]...), st
end"""
_IMAGE_MEAN = """# A mean pool that does not count padding.
struct ImageMean{P} <: AbstractLuxWrapperLayer{:pool}
    pool::P
end

function (layer::ImageMean)(x, ps, st)
    y, _ = layer.pool(x, ps, st)
    counted, _ = layer.pool(ones(DTYPE, size(x, 1), size(x, 2), 1, 1), ps, st)
    return y ./ counted, st
end"""
_GIVEN_DROPOUT = """# Dropout with the mask of `set_masks!`.
mutable struct GivenDropout <: AbstractLuxLayer
    mask::AbstractArray
end

GivenDropout() = GivenDropout(zeros(DTYPE, 0))
Lux.initialstates(::AbstractRNG, ::GivenDropout) = (; training = Val(true))

(layer::GivenDropout)(x, ps, st) = (st.training isa Val{true} ? x .* layer.mask : x, st)

dropouts(layer::GivenDropout) = [layer]
dropouts(layer::SkipConnection) = dropouts(layer.layers)
dropouts(layer::Union{Chain, Parallel}) = mapreduce(dropouts, vcat, values(layer.layers))
dropouts(layer) = GivenDropout[]"""
_BIASED = """# Not all layers have a bias.
biased(name, ps) = haskey(ps, :bias) ? ["$name.bias" => ps.bias] : []"""


class LuxLayerCode(LayerCode):
    """The code for layers, as `LayerCode`."""

    framework = "Lux.jl"
    flatten, identity, self_attention = "FlattenLayer()", "NoOpLayer()", "self_attention"
    bias = "use_bias"
    skipped = ""
    dropouts = "dropouts(state.train_state.model)"
    epsilon = "epsilon"
    mean_over_time = "mean_over_time(x) = dropdims(sum(x; dims = 2); dims = 2) ./ size(x, 2)"
    positions, class_token, unembedding = _POSITIONS, _CLASS_TOKEN, _UNEMBEDDING
    given_dropout, image_mean = _GIVEN_DROPOUT, _IMAGE_MEAN

    def step(self, index: int) -> str:
        return f".layer_{index}"

    def entry(self, layer: spec.Layer, name: str) -> Entry:
        return Entry("", f"{_ARRAYS[type(layer)]}_tensors({name}, ", ")", layer)

    def alone(self, element: Element) -> Element:
        """Wrap a function, which is a layer in a chain only."""
        code = element.code
        if isinstance(code, Call) or (code.endswith(")") and not code.startswith("x -> ")):
            return element
        return element._replace(code=f"WrappedFunction({code})")

    def elements(self, layer: spec.Layer, activation: str, scope: Scope) -> Sequence[Element]:
        def field(name: str) -> str:
            return scope.field(layer, name)

        def made(function: str, *arguments: str) -> Sequence[Element]:
            assert isinstance(layer, spec.Named)
            return [Element(Call(function, arguments), [self.entry(layer, scope.text(layer.name))])]

        match layer:
            case spec.LSTM():
                raise unsupported_layer(self.framework, layer)
            case spec.Positions():
                return made("Positions", field("features"), field("length"))
            case spec.ClassToken():
                return made("ClassToken", field("features"))
            case spec.Dense(tied=str()):
                if self.is_table(layer):
                    return made("Unembedding", str(layer.inputs), str(layer.outputs))
                (element,) = made("Dense", f"{layer.inputs} => {layer.outputs}", *([activation] if activation else []))
                assert isinstance(element.code, Call)
                return [element._replace(code=element.code._replace(options=["use_bias = false"]))]
            case _:
                return super().elements(layer, activation, scope)

    def attention(self) -> str:
        """Return the function that makes attention; Lux's has no biases unless it is asked for them."""
        causal, bias = self.values(spec.Attention, "causal"), self.values(spec.Attention, "bias")
        options = [*(["causal = false"] if len(causal) > 1 else []), *(["use_bias = true"] if len(bias) > 1 else [])]
        settings = ["nheads = heads"]
        if True in bias:
            settings.append(f"dense_kwargs = (; {'use_bias' if len(bias) > 1 else 'use_bias = true'})")
        if True in causal:
            settings.append(f"is_causal = {'causal' if len(causal) > 1 else 'true'}")
        made = Call("Chain", [Call("MultiHeadAttention", ["features"], settings), "first"])
        function = text(f"{Call('self_attention', ['features', 'heads'], options)} = ", made)
        return f"# Attention of a sequence with itself, without its second result, the scores.\n{function}"

    def batch_norm(self) -> str:
        parameters = Call("batch_norm", ["channels", *(["activation = identity"] if self._fuses_norm else [])])
        arguments = ["channels", *(["activation"] if self._fuses_norm else [])]
        settings, options = [], []
        for field in ("epsilon", "momentum"):
            value, different = self.constant(spec.BatchNorm, field)
            settings.append(field if different else f"{field} = {value}")
            options += different
        made = text(f"{parameters._replace(options=options)} = ", Call("BatchNorm", arguments, settings))
        return f"# The default epsilon and momentum are numbers of Float32.\n{made}"

    def layer_norm(self) -> str:
        epsilon, options = self.constant(spec.LayerNorm, "epsilon")
        bias = self.values(spec.LayerNorm, "bias")
        if False in bias:
            options += ["use_bias = true"] if True in bias else []
            scale = Call("Scale", ["features"], ["use_bias" if True in bias else "use_bias = false"])
        else:
            scale = Call("Scale", ["features"])
        norm = Call("LayerNorm", ["(features,)"], ["affine = false", "dims = 1", _option("epsilon", epsilon)])
        function = text(f"{Call('layer_norm', ['features'], options)} = ", Call("Chain", [norm, scale]))
        return f"# Lux's own scale and bias have an axis for each of the input.\n{function}"

    def group_norm(self) -> str:
        epsilon, options = self.constant(spec.GroupNorm, "epsilon")
        made = Call("GroupNorm", ["channels", "groups"], [_option("epsilon", epsilon)])
        return text(f"{Call('group_norm', ['channels', 'groups'], options)} = ", made)

    def arrays(self) -> Iterator[str]:
        kinds = {type(layer) for layer in self.layers if getattr(layer, "tied", None) is None}
        if kinds & {spec.Conv, spec.Patches}:
            biases = self.values(spec.Conv, "bias") | self.values(spec.Patches, "bias")
            yield _method("conv", {"weight": "kernel(ps.weight)"}, biases)
            yield "# Lux's convolution flips its kernel.\nkernel(weight) = @view weight[end:-1:1, end:-1:1, :, :]"
        if spec.Dense in kinds:
            yield _method("dense", {"weight": "transpose(ps.weight)"}, self.values(spec.Dense, "bias"))
        if spec.BatchNorm in kinds:
            names = {
                "weight": "ps.scale", "bias": "ps.bias",
                "running_mean": "st.running_mean", "running_variance": "st.running_var",
            }  # fmt: skip
            yield named_arrays("batch_norm_tensors(name, ps, st)", names, {False}, ("", ""))
        if spec.LayerNorm in kinds:
            scale = {"weight": "ps.layer_2.weight"}
            yield _method("layer_norm", scale, self.values(spec.LayerNorm, "bias"), "ps.layer_2")
        if spec.GroupNorm in kinds:
            yield _method("group_norm", {"weight": "ps.scale"}, {True})
        if kinds & {spec.Embedding, spec.Positions}:
            yield _method("table", {"weight": "ps.weight"}, {False})
        if spec.ClassToken in kinds:
            yield _method("token", {"token": "ps.token"}, {False})
        if spec.Attention in kinds:
            parts = "(inner.q_proj, inner.k_proj, inner.v_proj, inner.out_proj)"
            has_none = "haskey(inner.q_proj, :bias) || return weights"
            biases, inner = self.values(spec.Attention, "bias"), ["    inner = ps.layer_1"]
            yield attention_arrays("attention_tensors(name, ps)", inner, (parts, has_none), biases)
        if self.mixes_biases:
            yield _BIASED


def _option(name: str, value: str) -> str:
    """Return an option; a parameter of its name is that value."""
    return name if value == name else f"{name} = {value}"


def _method(kind: str, arrays: Mapping[str, str], biases: set[bool], owner: str = "ps") -> str:
    """Return the function of the arrays of a kind of layers, with a bias in `owner` if layers have one."""
    return named_arrays(f"{kind}_tensors(name, ps)", arrays, biases, (f"{owner}.bias", owner))
