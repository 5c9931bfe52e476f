"""Writes a network as a Flux `Chain`, and its arrays by name as views in the canonical layout.

An activation after a convolution, dense layer or batch norm becomes that layer's own. This module does not start Julia.
ADD A LAYER: its case in `_layer`, and what Flux lacks in `layer_code`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from polybench.engines.flux.julia_text import Call, Expression, comments, lines, number, text, vector
from polybench.engines.flux.layer_code import LayerCode
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Kind, Part, Stage, blocks_of, is_size, ordered_parameters, parts
from polybench.networks.padding import Sides
from polybench.networks.sequence_layers import REVERSE
from polybench.networks.source_text import escape, literal

_ACTIVATIONS: Mapping[type[spec.Layer], str] = {spec.ReLU: "relu", spec.ReLU6: "relu6", spec.SiLU: "swish"}
_SHARED: Mapping[type[spec.Layer], tuple[str, str]] = {
    spec.Embedding: ("embedding", "weight"),
    spec.Positions: ("positions", "weight"),
    spec.Dense: ("dense", "weight"),
    spec.LSTM: ("lstm", "cell.Wi"),
}
"""Layers whose weight another layer may use: the variable of one, and the place of its weight."""


_TENSORS = """# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed."""


class Entry(NamedTuple):
    """Code of the arrays of a layer or block at a path in its chain: `start`, the path's expression, `end`.

    `layer` is None for a block.
    """

    path: str
    start: str
    end: str
    layer: spec.Layer | None = None

    def below(self, path: str) -> Entry:
        """Return the entry of the same layer, from a chain that has this one's at `path`."""
        return self._replace(path=f"{path}{self.path}")


class Element(NamedTuple):
    """An element of a chain, and its arrays."""

    code: Expression
    entries: Sequence[Entry] = ()


class Scope(NamedTuple):
    """The function in which a layer is: that of a block's kind, or of the network."""

    kind: Kind | None = None

    def text(self, name: str) -> str:
        """Return the expression of a layer's name."""
        return literal(name) if self.kind is None else f'"$name{escape(name.removeprefix(self.kind.prefix))}"'

    def field(self, layer: spec.Layer, name: str) -> str:
        """Return a layer's number, or the parameter that stands for it."""
        fields = self.kind.fields if self.kind else {}
        found = fields.get((getattr(layer, "name", ""), name))
        if found is not None:
            return found
        return _value(getattr(layer, name))


class NetworkCode:
    """The functions of a network. With `given_masks`, dropout layers are `GivenDropout`.

    `engines/flux/lux` writes the same chains with Lux's names, and with other code of arrays.
    """

    framework = "Flux.jl"
    layer_code = LayerCode
    flatten, identity, attention = "Flux.flatten", "identity", "SelfAttention"
    bias = "bias"
    """The option of layers that may lack a bias."""
    skipped = ".layers"
    """The path in a `SkipConnection`."""
    dropouts = "filter(layer -> layer isa GivenDropout, Flux.modules(state.model))"
    """The layers of `set_masks!`."""

    def __init__(self, layers: Sequence[spec.Layer], shape: spec.Shape, *, given_masks: bool = False) -> None:
        self._given_masks = given_masks
        every = list(spec.walk(layers))
        self._code = self.layer_code(every, given_masks=given_masks)
        tying = [layer for layer in every if isinstance(layer, spec.Dense) and layer.tied]
        self._tied = {layer.tied for layer in tying}
        self._parts: Sequence[Part] = parts(layers, shape)
        outside = list(spec.walk([part for part in self._parts if not isinstance(part, Block | Stage)]))
        names = {layer.name for layer in outside if isinstance(layer, spec.Named)}
        if not self._tied | {layer.name for layer in tying} <= names:
            self._parts = layers  # the function of a block has no variable of a layer that others use
        kinds = {block.kind.name: block.kind for part in self._parts for block in blocks_of(part)}
        self._kinds, self._functions = list(kinds.values()), _functions(kinds)
        self._variables: dict[str, str] = {}
        self._definitions: list[str] = []
        self._fuses_norm = False  # of a batch norm
        self._elements = {
            kind.name: self._in_chain(list(self._chain(kind.layers, Scope(kind)))) for kind in self._kinds
        }
        self._network = list(self._chain(self._parts, Scope()))

    @property
    def has_dropout(self) -> bool:
        """True if the network has dropout."""
        return bool(self._code.of(spec.Dropout))

    def text(self, summary: str = "") -> str:
        """Return the types of layers and the functions; the last one is `network`."""
        sections = list(self._code.types(fuses=self._fuses_norm))
        for kind in self._kinds:
            code = self._elements[kind.name].code
            sections.append(text(f"{self._functions[kind.name]}({_parameters(kind)}) = ", code))
        chain = Call("Chain", [element.code for element in self._network])
        comment = comments(f"{summary[:1].upper()}{summary[1:]}.") if summary else []
        if not self._definitions:
            body = lines("network() = ", chain)
        else:
            body = ["function network()", *self._definitions, *lines("    return ", chain), "end"]
        return "\n\n".join([*sections, "\n".join([*comment, *body])])

    def tensors(self) -> str:
        """Return the function `tensors`, and those that it calls."""
        sections = [f"{_TENSORS}\n{self.network_tensors(self._below(self._network))}"]
        arrays = {self._functions[kind.name]: self._elements[kind.name].entries for kind in self._kinds}
        sections += [self.block_tensors(function, entries) for function, entries in arrays.items() if entries]
        return "\n\n".join([*sections, *self._code.arrays()])

    def network_tensors(self, entries: Sequence[Entry]) -> str:
        """Return the function `tensors`."""
        return _joined("tensors(model) = ", entries, "model")

    def block_tensors(self, function: str, entries: Sequence[Entry]) -> str:
        """Return the function of the arrays of a block that another function makes."""
        return _joined(f"{function}_tensors(name, block) = ", entries, "block")

    def masks(self) -> Iterator[str]:
        """Yield the function `set_masks!`, if masks are given."""
        if not self._given_masks or not self.has_dropout:
            return
        names = [literal(layer.name) for layer in self._code.of(spec.Dropout)]
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

    def step(self, index: int) -> str:
        """Return the path from a chain to its element of this number."""
        return f"[{index}]"

    def entry(self, layer: spec.Layer, name: str) -> Entry:
        """Return the arrays of a layer, whose name is this expression."""
        return Entry("", f"named({name}, ", ")", layer)

    def alone(self, element: Element) -> Element:
        """Return an element that is in no chain."""
        return element

    def is_shared(self, layer: spec.Layer) -> bool:
        """Return True if a layer is a variable, whose weight another one uses."""
        return isinstance(layer, spec.Named) and layer.name in self._tied

    def _below(self, elements: Sequence[Element]) -> list[Entry]:
        """Return the entries of the elements, from their chain."""
        return [one.below(self.step(index)) for index, element in enumerate(elements, 1) for one in element.entries]

    def _fuses(self, layer: Part | None) -> bool:
        """Return True if the activation after a layer becomes its own."""
        is_table = isinstance(layer, spec.Dense) and self._code.is_table(layer)
        return isinstance(layer, spec.Conv | spec.Dense | spec.BatchNorm) and not is_table

    def _chain(self, layers: Sequence[Part], scope: Scope) -> Iterator[Element]:
        """Yield the elements of a chain of these layers."""
        for before, layer, after in zip([None, *layers], layers, [*layers[1:], None], strict=False):
            if _activation(layer) and self._fuses(before):
                continue
            activation = _activation(after) if self._fuses(layer) else ""
            if isinstance(layer, Stage):
                yield self._stage(layer)
            elif isinstance(layer, Block):
                yield self._block(layer)
            elif self.is_shared(layer):
                yield self._shared(layer, activation, scope)
            else:
                yield from self.layer(layer, activation, scope)

    def _in_chain(self, elements: Sequence[Element]) -> Element:
        """Return a chain as one element; that of a single element is the element itself."""
        if len(elements) == 1:
            return self.alone(elements[0])
        if not elements:
            return Element(self.identity)
        return Element(Call("Chain", [element.code for element in elements]), self._below(elements))

    def _shared(self, layer: spec.Layer, activation: str, scope: Scope) -> Element:
        """Return the variable of a layer whose weight another one uses; the layer becomes a definition."""
        element = self._in_chain(list(self.layer(layer, activation, scope)))
        kind, place = _SHARED[type(layer)]
        taken = sum(one.partition(" = ")[0].strip().startswith(kind) for one in self._definitions)
        variable = f"{kind}{taken + 1 if taken else ''}"
        self._definitions += lines(f"    {variable} = ", element.code)
        assert isinstance(layer, spec.Named)
        self._variables[layer.name] = f"{variable}{element.entries[0].path}.{place}"
        return element._replace(code=variable)

    def _block(self, block: Block, name: str = "") -> Element:
        """Return the call of a block's function."""
        function, entries = self._functions[block.kind.name], self._elements[block.kind.name].entries
        code = f"{function}({_arguments(block)})"
        name = name or literal(block.prefix)
        return Element(code, [Entry("", f"{function}_tensors({name}, ", ")")] if entries else [])

    def _stage(self, stage: Stage) -> Element:
        """Return the chain of consecutive blocks, of which equal ones are made by a comprehension."""
        codes: list[str] = []
        for code, equal in groupby(str(self._block(block).code) for block in stage.blocks):
            count = len(list(equal))
            codes.append(f"[{code} for _ in 1:{count}]..." if count > 1 else code)
        series = escape(f"{stage.parent}.{stage.base}" if stage.parent else stage.base)
        entries, index = [], 1
        for _, alike in groupby(stage.blocks, lambda block: block.kind.name):
            blocks = list(alike)
            first = stage.first + index - 1
            if len(blocks) == 1:
                entries += [entry.below(self.step(index)) for entry in self._block(blocks[0]).entries]
            else:
                offset = 1 - stage.first
                place = f"n {'+' if offset > 0 else '-'} {abs(offset)}" if offset else "n"
                for one in self._block(blocks[0], f'"{series}$n"').entries:
                    last = f"{one.end} for n in {first}:{first + len(blocks) - 1}]..."
                    entries.append(Entry(f"[{place}]", f"[{one.start}", last))
            index += len(blocks)
        return Element(Call("Chain", codes), entries)

    def layer(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of layer
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
                table, end = self._code.is_table(layer), [activation] if activation else []
                weight = self._variables[tied]
                return [Element(Call("Unembedding", [weight]) if table else Call("Dense", [weight, "false", *end]))]
            case spec.Dense():
                return made("Dense", f"{field('inputs')} => {field('outputs')}", options=options(bias=True))
            case spec.BatchNorm():
                return made("batch_norm", field("channels"), options=self._code.norm_options(layer))
            case spec.LayerNorm():
                bias = options(bias=True) if len(self._code.values(spec.LayerNorm, "bias")) > 1 else []
                return made("layer_norm", field("features"), options=[*self._code.norm_options(layer), *bias])
            case spec.GroupNorm():
                return made("group_norm", field("channels"), field("groups"), options=self._code.norm_options(layer))
            case spec.Dropout():
                return [Element("GivenDropout()" if self._given_masks else f"Dropout({field('rate')})")]
            case spec.MaxPool() | spec.AveragePool():
                return self._pool(layer)
            case spec.GlobalAveragePool():
                return [Element("GlobalMeanPool()"), Element(self.flatten)]
            case spec.ReLU() | spec.ReLU6() | spec.SiLU() | spec.GELU():
                return [Element(f"x -> {_activation(layer)}.(x)")]
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
                several = [name for key, name in names.items() if len(self._code.values(spec.Attention, key)) > 1]
                settings = [one for one in options(causal=False, bias=True) if one.partition(" ")[0] in several]
                return made(self.attention, field("features"), field("heads"), options=settings)
            case spec.Residual():
                return [self._residual(layer, scope)]
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
        return [Element(Call("ImageMean", [self._in_chain(elements).code]))]

    def _lstm(self, layer: spec.LSTM, lstm: Element) -> Sequence[Element]:
        """Return the elements of one LSTM, or of the two that read in both directions."""
        if not layer.bidirectional:
            return [lstm] if layer.sequence else [lstm, Element("last_output")]
        (entry,) = lstm.entries
        other = lstm._replace(entries=[entry._replace(end=f', "{REVERSE}")')])
        end = [] if layer.sequence else [Element("last_output")]
        forward = self._in_chain([lstm, *end])
        back = [Element("reverse_time")] if layer.sequence else end
        backward = self._in_chain([Element("reverse_time"), other, *back])
        return [Element(Call("Parallel", ["vcat", forward.code, backward.code]), self._below([forward, backward]))]

    def _residual(self, layer: spec.Residual, scope: Scope) -> Element:
        body = self._in_chain(list(self._chain(layer.body, scope)))
        if not layer.shortcut:
            return Element(Call("SkipConnection", [body.code, "+"]), [one.below(self.skipped) for one in body.entries])
        shortcut = self._in_chain(list(self._chain(layer.shortcut, scope)))
        return Element(Call("Parallel", ["+", body.code, shortcut.code]), self._below([body, shortcut]))


def _joined(start: str, entries: Sequence[Entry], root: str) -> str:
    """Return a function of the arrays of all entries, whose paths begin at `root`."""
    calls = [f"{one.start}{root}{one.path}{one.end}" for one in entries]
    if not calls:
        return f"{start}[]"
    if len(calls) == 1 and not calls[0].endswith("..."):
        return f"{start}{calls[0]}"
    return "\n".join([f"{start}vcat(", *(f"    {call}," for call in calls), ")"])


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


def _activation(layer: Part | None) -> str:
    """Return the function of an activation; "" for other layers."""
    if isinstance(layer, spec.GELU):
        return "gelu_tanh" if layer.approximate == "tanh" else "gelu_erf"
    return _ACTIVATIONS.get(type(layer), "")  # type: ignore[arg-type]


def _functions(kinds: Iterable[str]) -> dict[str, str]:
    """Return the function of each kind: it ends in `block`, as no name of Base, Flux or the program does."""
    functions: dict[str, str] = {}
    for kind in kinds:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
        name = name if re.fullmatch(r"(.*_)?block\d*", name) else f"{name}_block"
        while name in functions.values():
            name = f"another_{name}"
        functions[kind] = name
    return functions


def _parameters(kind: Kind) -> str:
    """Return the parameters of a kind's function; sizes are positional."""
    names = ordered_parameters(kind.fields.values())
    sizes, options = ([name for name in names if is_size(name) == wanted] for wanted in (True, False))
    return f"{', '.join(sizes)}{'; ' if options else ''}{', '.join(options)}"


def _arguments(block: Block) -> str:
    """Return the arguments that make a block."""
    names = ordered_parameters(block.arguments)
    sizes = [str(block.arguments[name]) for name in names if is_size(name)]
    options = [f"{name} = {_value(block.arguments[name])}" for name in names if not is_size(name)]
    return f"{', '.join(sizes)}{'; ' if options else ''}{', '.join(options)}"


def _value(value: bool | float) -> str:
    return number(value) if isinstance(value, float) else str(value).lower()
