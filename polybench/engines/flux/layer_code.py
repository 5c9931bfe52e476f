"""Writes the layers of a network in Flux: elements of a chain, what Flux lacks, and the names of arrays.

An activation after a convolution, dense layer or batch norm becomes that layer's own. ADD A LAYER: its case in
`LayerCode.elements`, its type in `LayerCode.types` if Flux has none, and its arrays in `LayerCode.arrays`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from polybench.engines.flux.chain import Element, Entry, Scope
from polybench.engines.flux.julia_text import Call, number, text, vector
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec
from polybench.networks.blocks import Part
from polybench.networks.padding import Sides
from polybench.networks.sequence_layers import REVERSE
from polybench.networks.source_text import literal

AnyLayer = TypeVar("AnyLayer", bound=spec.Layer)

_ACTIVATIONS: Mapping[type[spec.Layer], str] = {spec.ReLU: "relu", spec.ReLU6: "relu6", spec.SiLU: "swish"}
SHARED: Mapping[type[spec.Layer], tuple[str, str]] = {
    spec.Embedding: ("embedding", "weight"),
    spec.Positions: ("positions", "weight"),
    spec.Dense: ("dense", "weight"),
    spec.LSTM: ("lstm", "cell.Wi"),
}
"""Layers whose weight another layer may use: the variable of one, and the place of its weight."""

_NORM_OPTIONS = {"epsilon": 1e-5, "momentum": 0.1}
"""The constants of norms by field: the default of the program's function."""

_ARRAYS: Mapping[type[spec.Layer], Mapping[str, str]] = {
    spec.BatchNorm: {
        "weight": "layer.γ", "bias": "layer.β",  # noqa: RUF001 - Flux's names
        "running_mean": "layer.μ", "running_variance": "layer.σ²",
    },
    spec.GroupNorm: {"weight": "layer.γ", "bias": "layer.β"},  # noqa: RUF001
    spec.Embedding: {"weight": "layer.weight"},
    spec.Positions: {"weight": "layer.weight"},
    spec.ClassToken: {"token": "layer.token"},
}  # fmt: skip
"""The arrays of layers that always have all of them, by canonical name."""

_POSITIONS = """# Adds a column of a table to each position.
struct Positions{W}
    weight::W
end

Flux.@layer Positions

(positions::Positions)(x) = x .+ positions.weight[:, 1:size(x, 2)]"""
_CLASS_TOKEN = """# Adds a position before the first.
struct ClassToken{W}
    token::W
end

Flux.@layer ClassToken

(layer::ClassToken)(x) = hcat(layer.token .* Flux.ones_like(x, (1, 1, size(x, 3))), x)"""
_UNEMBEDDING = """# Multiplies with a table that another layer has, whose rows are its columns.
struct Unembedding{W}
    weight::W
end

Flux.@layer Unembedding

function (layer::Unembedding)(x)
    y = transpose(layer.weight) * reshape(x, size(x, 1), :)
    return reshape(y, :, size(x)[2:end]...)
end"""
_ATTENTION = """# Flux's attention of a sequence with itself, without its second result, the scores.
struct SelfAttention{A}
    attention::A{field}
end

Flux.@layer SelfAttention

function SelfAttention({parameters})
    q, k, v, output = (Dense(features => features{bias}) for _ in 1:4)
    # `identity` in place of Flux's Dropout(0.0), which draws a number for each score.
    return SelfAttention(MultiHeadAttention(heads, q, k, v, identity, output){causal})
end

"""
_SELF_ATTENTION = {
    (False,): "(layer::SelfAttention)(x) = first(layer.attention(x))",
    (True,): "(layer::SelfAttention)(x) = first(layer.attention(x; mask = make_causal_mask(x)))",
    (False, True): """function (layer::SelfAttention)(x)
    mask = layer.causal ? make_causal_mask(x) : nothing
    return first(layer.attention(x; mask))
end""",
}
"""The call of attention in a network without a causal mask, with one, and with both."""
_IMAGE_MEAN = """# A mean pool that does not count padding.
struct ImageMean{P}
    pool::P
end

Flux.@layer ImageMean

function (layer::ImageMean)(x)
    ones = Flux.ones_like(x, (size(x, 1), size(x, 2), 1, 1))
    return layer.pool(x) ./ Flux.ignore_derivatives(() -> layer.pool(ones))
end"""
_GIVEN_DROPOUT = """# Dropout with the mask of `set_masks!`.
mutable struct GivenDropout
    mask::AbstractArray
    active::Bool
end

Flux.@layer GivenDropout trainable = ()

GivenDropout() = GivenDropout(zeros(DTYPE, 0), true)
(layer::GivenDropout)(x) = layer.active ? x .* layer.mask : x

function Flux.testmode!(layer::GivenDropout, mode = true)
    layer.active = mode !== true
    return layer
end"""

_SEQUENCE = "# A sequence is (features, time, batch)."
_TO_SEQUENCE = "to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))"
_REVERSE_TIME = "reverse_time(x) = reverse(x; dims = 2)"
_LAST_OUTPUT = "last_output(x) = x[:, end, :]"
_FIRST_POSITION = "first_position(x) = x[:, 1, :]"
_BIASED = """# A layer without a bias has `false`.
biased(name, bias) = bias isa AbstractArray ? ["$name.bias" => bias] : []"""


class LayerCode:
    """The code for layers, those of residual blocks included. With `given_masks`, dropout layers are `GivenDropout`.

    `engines/flux/lux` has the same with Lux's names.

    Attributes:
        variables: the expression of each weight that another layer uses, by the name of its layer.
    """

    framework = "Flux.jl"
    flatten, identity, self_attention = "Flux.flatten", "identity", "SelfAttention"
    bias = "bias"
    """The option of layers that may lack a bias."""
    skipped = ".layers"
    """The path in a `SkipConnection`."""
    dropouts = "filter(layer -> layer isa GivenDropout, Flux.modules(state.model))"
    """The layers of `set_masks!`."""
    epsilon = "eps"
    """The option of a norm."""
    mean_over_time = "mean_over_time(x) = dropdims(Flux.mean(x; dims = 2); dims = 2)"
    positions, class_token, unembedding = _POSITIONS, _CLASS_TOKEN, _UNEMBEDDING
    given_dropout, image_mean = _GIVEN_DROPOUT, _IMAGE_MEAN

    def __init__(self, layers: Sequence[spec.Layer], *, given_masks: bool = False) -> None:
        self.layers, self.given_masks = layers, given_masks
        self.variables: dict[str, str] = {}
        self._fuses_norm = False  # of a batch norm

    def of(self, kind: type[AnyLayer]) -> list[AnyLayer]:
        """Return the layers of a type."""
        return [layer for layer in self.layers if isinstance(layer, kind)]

    def is_table(self, layer: spec.Dense) -> bool:
        """Return True if a dense layer uses the table of an embedding or of positions."""
        names = {one.name for one in self.of(spec.Embedding)} | {one.name for one in self.of(spec.Positions)}
        return layer.tied in names

    def values(self, kind: type[Any], field: str) -> set[Any]:
        """Return the values that layers of a kind with arrays of their own have in a field."""
        return {getattr(layer, field) for layer in self.of(kind) if getattr(layer, "tied", None) is None}

    def norm_options(self, layer: spec.BatchNorm | spec.LayerNorm | spec.GroupNorm) -> list[str]:
        """Return the arguments of a norm in which those of its kind differ and which are not the default."""
        return [
            f"{self._option(field)} = {number(getattr(layer, field))}"
            for field, default in _NORM_OPTIONS.items()
            if getattr(layer, field, default) != default and len(self.values(type(layer), field)) > 1
        ]

    def step(self, index: int) -> str:
        """Return the path from a chain to its element of this number."""
        return f"[{index}]"

    def entry(self, layer: spec.Layer, name: str) -> Entry:
        """Return the arrays of a layer, whose name is this expression."""
        return Entry("", f"named({name}, ", ")", layer)

    def alone(self, element: Element) -> Element:
        """Return an element that is in no chain."""
        return element

    def below(self, elements: Sequence[Element]) -> list[Entry]:
        """Return the entries of the elements, from their chain."""
        return [one.below(self.step(index)) for index, element in enumerate(elements, 1) for one in element.entries]

    def in_chain(self, elements: Sequence[Element]) -> Element:
        """Return a chain as one element; that of a single element is the element itself."""
        if len(elements) == 1:
            return self.alone(elements[0])
        if not elements:
            return Element(self.identity)
        return Element(Call("Chain", [element.code for element in elements]), self.below(elements))

    def fuses(self, layer: Part | None) -> bool:
        """Return True if the activation after a layer becomes its own."""
        is_table = isinstance(layer, spec.Dense) and self.is_table(layer)
        return isinstance(layer, spec.Conv | spec.Dense | spec.BatchNorm) and not is_table

    def elements(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of layer
        self, layer: spec.Layer, activation: str, scope: Scope
    ) -> Sequence[Element]:
        """Return the elements of a chain for a layer."""

        def field(name: str) -> str:
            return scope.field(layer, name)

        def options(**defaults: object) -> list[str]:
            found = {name: field(name) for name in defaults}
            changed = {name: one for name, one in found.items() if one != str(defaults[name]).lower()}
            different = {self.bias if name == "bias" else name: one for name, one in changed.items()}
            return [name if one == name else f"{name} = {one}" for name, one in different.items()]

        def made(function: str, *arguments: str, options: Sequence[str] = ()) -> list[Element]:
            given = [*arguments, *([activation] if activation else [])]
            self._fuses_norm |= bool(activation) and function == "batch_norm"
            name = scope.text(layer.name) if isinstance(layer, spec.Named) else ""
            return [Element(Call(function, given, options), [self.entry(layer, name)] if name else [])]

        match layer:
            case spec.Conv():
                padded = _pad("SamePad()" if layer.padding == "same" else layer.pads)
                sizes = f"({layer.kernel}, {layer.kernel})", f"{field('inputs')} => {field('outputs')}"
                settings = [*options(stride=1), *padded, *options(groups=1, bias=True)]
                return made("Conv", *sizes, options=settings)
            case spec.Patches():
                sizes = f"({layer.size}, {layer.size})", f"{field('inputs')} => {field('outputs')}"
                settings = [f"stride = {layer.size}", *options(bias=True)]
                return [*made("Conv", *sizes, options=settings), Element("to_sequence")]
            case spec.Dense(tied=str() as tied):
                table, end = self.is_table(layer), [activation] if activation else []
                weight = self.variables[tied]
                return [Element(Call("Unembedding", [weight]) if table else Call("Dense", [weight, "false", *end]))]
            case spec.Dense():
                return made("Dense", f"{field('inputs')} => {field('outputs')}", options=options(bias=True))
            case spec.BatchNorm():
                return made("batch_norm", field("channels"), options=self.norm_options(layer))
            case spec.LayerNorm():
                bias = options(bias=True) if len(self.values(spec.LayerNorm, "bias")) > 1 else []
                return made("layer_norm", field("features"), options=[*self.norm_options(layer), *bias])
            case spec.GroupNorm():
                return made("group_norm", field("channels"), field("groups"), options=self.norm_options(layer))
            case spec.Dropout():
                return [Element("GivenDropout()" if self.given_masks else f"Dropout({field('rate')})")]
            case spec.MaxPool() | spec.AveragePool():
                return self._pool(layer)
            case spec.GlobalAveragePool():
                return [Element("GlobalMeanPool()"), Element(self.flatten)]
            case spec.ReLU() | spec.ReLU6() | spec.SiLU() | spec.GELU():
                return [Element(f"x -> {activation_of(layer)}.(x)")]
            case spec.Flatten():
                return [Element(self.flatten)]
            case spec.MeanOverTime():
                return [Element("mean_over_time")]
            case spec.FirstPosition():
                return [Element("first_position")]
            case spec.Embedding():
                return made("Embedding", f"{field('vocabulary')} => {field('features')}")
            case spec.Positions():
                return made("Positions", f"Flux.zeros32({field('features')}, {field('length')})")
            case spec.ClassToken():
                return made("ClassToken", f"Flux.zeros32({field('features')})")
            case spec.Attention():
                names = {"causal": "causal", "bias": self.bias}
                several = [name for key, name in names.items() if len(self.values(spec.Attention, key)) > 1]
                settings = [one for one in options(causal=False, bias=True) if one.partition(" ")[0] in several]
                return made(self.self_attention, field("features"), field("heads"), options=settings)
            case spec.LSTM():
                return self._lstm(layer, made("LSTM", f"{field('inputs')} => {field('units')}")[0])
            case _:
                raise unsupported_layer(self.framework, layer)

    def _pool(self, layer: spec.MaxPool | spec.AveragePool) -> Sequence[Element]:
        kind = "MaxPool" if isinstance(layer, spec.MaxPool) else "MeanPool"
        stride = [] if layer.stride == layer.size else [f"stride = {layer.stride}"]
        padding = _pad(layer.pads) if layer.pads.symmetric else []
        pool = Call(kind, [f"({layer.size}, {layer.size})"], [*stride, *padding])
        elements = [Element(pool)]
        if layer.pads.symmetric is None:
            outside = "DTYPE(-Inf)" if isinstance(layer, spec.MaxPool) else "DTYPE(0)"
            elements.insert(0, Element(f"x -> pad_constant(x, {layer.pads.width_first}, {outside}; dims = (1, 2))"))
        if getattr(layer, "count_padding", True):
            return elements
        return [Element(Call("ImageMean", [self.in_chain(elements).code]))]

    def _lstm(self, layer: spec.LSTM, lstm: Element) -> Sequence[Element]:
        """Return the elements of one LSTM, or of the two that read in both directions."""
        activation = layer.recurrent_activation
        missing = ["biases = 2"] if layer.biases == 2 else []
        missing += [f'recurrent_activation = "{activation}"'] if activation != "sigmoid" else []
        if missing:
            raise unsupported_layer(self.framework, layer, *missing)
        if not layer.bidirectional:
            return [lstm] if layer.sequence else [lstm, Element("last_output")]
        (entry,) = lstm.entries
        other = lstm._replace(entries=[entry._replace(end=f', "{REVERSE}")')])
        end = [] if layer.sequence else [Element("last_output")]
        forward = self.in_chain([lstm, *end])
        back = [Element("reverse_time")] if layer.sequence else end
        backward = self.in_chain([Element("reverse_time"), other, *back])
        return [Element(Call("Parallel", ["vcat", forward.code, backward.code]), self.below([forward, backward]))]

    def masks(self) -> Iterator[str]:
        """Yield the function `set_masks!`, if masks are given."""
        names = [literal(layer.name) for layer in self.of(spec.Dropout)]
        if not (self.given_masks and names):
            return
        yield "\n".join([
            "# Set the masks of the next step, by the names of dropout layers.",
            "function set_masks!(state, masks)",
            *vector("    names = ", names),
            f"    layers = {self.dropouts}",
            "    for (name, layer) in zip(names, layers)",
            "        layer.mask = masks[name]",
            "    end",
            "    return nothing",
            "end",
        ])  # fmt: skip

    def types(self) -> Iterator[str]:
        """Yield the types of layers that Flux lacks, and functions that make or are layers."""
        kinds = {type(layer) for layer in self.layers}
        if self.given_masks and spec.Dropout in kinds:
            yield self.given_dropout
        for kind, code in ((spec.Positions, self.positions), (spec.ClassToken, self.class_token)):
            yield from [code] if kind in kinds else []
        if any(self.is_table(layer) for layer in self.of(spec.Dense)):
            yield self.unembedding
        if spec.Attention in kinds:
            yield self.attention()
        if not all(layer.count_padding for layer in self.of(spec.AveragePool)):
            yield self.image_mean
        writers: Mapping[type[spec.Layer], Callable[[], str]] = {
            spec.BatchNorm: self.batch_norm,
            spec.LayerNorm: self.layer_norm,
            spec.GroupNorm: self.group_norm,
        }
        yield from (write() for kind, write in writers.items() if kind in kinds)
        lstms = self.of(spec.LSTM)
        functions = {
            _TO_SEQUENCE: spec.Patches in kinds,
            _REVERSE_TIME: any(layer.bidirectional for layer in lstms),
            _LAST_OUTPUT: not all(layer.sequence for layer in lstms),
            self.mean_over_time: spec.MeanOverTime in kinds,
            _FIRST_POSITION: spec.FirstPosition in kinds,
        }
        if used := [code for code, is_used in functions.items() if is_used]:
            yield "\n".join([_SEQUENCE, *used])

    @property
    def mixes_biases(self) -> bool:
        """True if some layers of a type with arrays have a bias, and others have none."""
        groups = ({spec.Conv, spec.Patches}, {spec.Dense}, {spec.LayerNorm})
        return any(len({one for kind in group for one in self.values(kind, "bias")}) > 1 for group in groups)

    def attention(self) -> str:
        """Return the type of attention, or the function that makes it."""
        causal, bias = self.values(spec.Attention, "causal"), self.values(spec.Attention, "bias")
        both = len(causal) > 1
        options = [*(["causal = false"] if both else []), *(["bias = true"] if len(bias) > 1 else [])]
        made = (
            _ATTENTION.replace("{field}", "\n    causal::Bool" if both else "")
            .replace("{parameters}", f"features, heads{'; ' if options else ''}{', '.join(options)}")
            .replace("{bias}", "; bias" if len(bias) > 1 else "" if True in bias else "; bias = false")
            .replace("{causal}", ", causal" if both else "")
        )
        return made + _SELF_ATTENTION[tuple(sorted(causal))]

    def batch_norm(self) -> str:
        """Return the function that makes batch norms; it takes an activation if one has its own."""
        epsilon, first = self.constant(spec.BatchNorm, "epsilon")
        momentum, second = self.constant(spec.BatchNorm, "momentum")
        parameters = Call("batch_norm", ["channels", *(["activation = identity"] if self._fuses_norm else [])])
        arguments = ["channels", *(["activation"] if self._fuses_norm else [])]
        made = Call("BatchNorm", arguments, [f"eps = DTYPE({epsilon})", f"momentum = DTYPE({momentum})"])
        return text(f"{parameters._replace(options=[*first, *second])} = ", made)

    def layer_norm(self) -> str:
        """Return the function that makes layer norms."""
        epsilon, options = self.constant(spec.LayerNorm, "epsilon")
        epsilon, bias = f"DTYPE(sqrt({epsilon}))", self.values(spec.LayerNorm, "bias")
        made = Call("LayerNorm", ["features"], [f"eps = {epsilon}"])
        if False in bias:
            options += ["bias = true"] if True in bias else []
            scale = f"Flux.Scale(features; bias{'' if True in bias else ' = false'})"
            made = Call("LayerNorm", ["identity", scale, epsilon, "(features,)", "true"])
        function = text(f"{Call('layer_norm', ['features'], options)} = ", made)
        return f"# Flux adds the square of its epsilon to the variance.\n{function}"

    def group_norm(self) -> str:
        """Return the function that makes group norms."""
        epsilon, options = self.constant(spec.GroupNorm, "epsilon")
        made = Call("GroupNorm", ["channels", "groups"], [f"eps = DTYPE({epsilon})", "momentum = DTYPE(0.1)"])
        function = text(f"{Call('group_norm', ['channels', 'groups'], options)} = ", made)
        return f"# The momentum has no effect, but needs the type of the epsilon.\n{function}"

    def arrays(self) -> Iterator[str]:
        """Yield the methods that return the arrays of a layer, and what they need."""
        kinds = {type(layer) for layer in self.layers if getattr(layer, "tied", None) is None}
        if kinds & {spec.Conv, spec.Patches}:
            biases = self.values(spec.Conv, "bias") | self.values(spec.Patches, "bias")
            yield _method("Conv", {"weight": "kernel(layer.weight)"}, biases)
            yield "# Flux's convolution flips its kernel.\nkernel(weight) = @view weight[end:-1:1, end:-1:1, :, :]"
        if spec.Dense in kinds:
            yield _method("Dense", {"weight": "transpose(layer.weight)"}, self.values(spec.Dense, "bias"))
        if spec.LayerNorm in kinds:
            scale = {"weight": "layer.diag.scale"}
            yield _method("LayerNorm", scale, self.values(spec.LayerNorm, "bias"), "layer.diag.bias")
        for kind, arrays in _ARRAYS.items():
            if kind in kinds:
                yield _method(kind.__name__, arrays, {False})
        if lstms := self.of(spec.LSTM):
            yield _lstm_arrays(any(layer.bidirectional for layer in lstms))
        if spec.Attention in kinds:
            parts = "(inner.q_proj, inner.k_proj, inner.v_proj, inner.out_proj)"
            has_none = "inner.q_proj.bias === false && return weights"
            biases, inner = self.values(spec.Attention, "bias"), ["    inner = layer.attention"]
            yield attention_arrays("named(name, layer::SelfAttention)", inner, (parts, has_none), biases)
        if self.mixes_biases:
            yield _BIASED

    def _option(self, field: str) -> str:
        return self.epsilon if field == "epsilon" else field

    def constant(self, kind: type[spec.Layer], field: str) -> tuple[str, list[str]]:
        """Return the expression of a norm's constant in its function, and the parameter if norms differ in it."""
        name, default = self._option(field), _NORM_OPTIONS[field]
        values = self.values(kind, field)
        return (name, [f"{name} = {number(default)}"]) if len(values) > 1 else (number(*values), [])


def _method(layer: str, arrays: Mapping[str, str], biases: set[bool], bias: str = "layer.bias") -> str:
    """Return the method that names the arrays of a layer, with a bias if layers of its type have one."""
    return named_arrays(f"named(name, layer::{layer})", arrays, biases, (bias, bias))


def named_arrays(function: str, arrays: Mapping[str, str], biases: set[bool], bias: tuple[str, str]) -> str:
    """Return a function that names arrays; `bias` is the one that all layers have, and what `biased` takes."""
    pairs = [f'"$name.{name}" => {array}' for name, array in arrays.items()]
    start = f"{function} = "
    if len(biases) > 1:
        return text(start, Call("vcat", [*pairs, f"biased(name, {bias[1]})"]))
    pairs += [f'"$name.bias" => {bias[0]}'] if True in biases else []
    return "\n".join(vector(start, pairs))


def _lstm_arrays(is_bidirectional: bool) -> str:
    fields = {"weight": "transpose(layer.cell.Wi)", "recurrent": "transpose(layer.cell.Wh)", "bias": "layer.cell.bias"}
    if not is_bidirectional:
        return _method("LSTM", fields, {False})
    pairs = [f'"$name.$(direction){name}" => {array}' for name, array in fields.items()]
    return "\n".join(vector('named(name, layer::LSTM, direction = "") = ', pairs))


def attention_arrays(function: str, first: Sequence[str], inner: tuple[str, str], biases: set[bool]) -> str:
    """Return a function that names the arrays of attention; `inner` are its projections, and a line without biases."""
    projections, has_none = inner
    lines = [
        f"function {function}",
        *first,
        "    parts = zip(",
        '        ("query", "key", "value", "output"),',
        f"        {projections},",
        "    )",
        '    weights = ["$name.$(part)_weight" => transpose(one.weight) for (part, one) in parts]',
    ]
    if biases == {False}:
        return "\n".join([*lines[:-1], lines[-1].replace("weights =", "return"), "end"])
    if len(biases) > 1:
        lines.append(f"    {has_none}")
    lines.append('    biases = ["$name.$(part)_bias" => one.bias for (part, one) in parts]')
    return "\n".join([*lines, "    return vcat(weights, biases)", "end"])


def _pad(pads: Sides | str) -> list[str]:
    """Return the padding of a layer as Flux takes it: of all sides, of width and height, or of each side."""
    if isinstance(pads, str):
        return [f"pad = {pads}"]
    return [f"pad = {julia_pad(pads)}"] if any(pads) else []


def julia_pad(pads: Sides) -> str:
    """Return the padding as Flux and Lux take it: of all sides, of width and height, or of each side."""
    if isinstance(pads.padding, int):
        return str(pads.padding)
    return str(pads.symmetric[::-1] if pads.symmetric else pads.width_first)


def activation_of(layer: Part | None) -> str:
    """Return the function of an activation; "" for other layers."""
    if isinstance(layer, spec.GELU):
        return "gelu_tanh" if layer.approximate == "tanh" else "gelu_erf"
    return _ACTIVATIONS.get(type(layer), "")  # type: ignore[arg-type]
