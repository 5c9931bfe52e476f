"""Writes a network as a Flux `Chain`, and its arrays by name as views in the canonical layout.

Blocks of a kind are made by a function. The layers themselves are in `layer_code`. This module does not start Julia.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from polybench.engines.flux.chain import Element, Entry, Scope, julia_value
from polybench.engines.flux.julia_text import Call, comments, lines, text
from polybench.engines.flux.layer_code import SHARED, LayerCode, activation_of
from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Kind, Part, Stage, blocks_of, is_size, ordered_parameters, parts
from polybench.networks.source_text import escape, literal

_TENSORS = """# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed."""


class NetworkCode:
    """The functions of a network. With `given_masks`, dropout layers are `GivenDropout`.

    `engines/flux/lux` writes the same chains with Lux's layers.
    """

    layer_code = LayerCode

    def __init__(self, layers: Sequence[spec.Layer], shape: spec.Shape, *, given_masks: bool = False) -> None:
        every = list(spec.walk(layers))
        self._code = self.layer_code(every, given_masks=given_masks)
        named = [layer for layer in every if isinstance(layer, spec.Named)]
        owners = {layer.name: tied for layer in named if (tied := getattr(layer, "tied", None))}
        self._tied = set(owners.values())
        self._parts: Sequence[Part] = parts(layers, shape)
        outside = list(spec.walk([part for part in self._parts if not isinstance(part, Block | Stage)]))
        names = {layer.name for layer in outside if isinstance(layer, spec.Named)}
        if not {*owners, *self._tied} <= names:
            self._parts = layers  # the function of a block has no variable of a layer that others use
        kinds = {block.kind.name: block.kind for part in self._parts for block in blocks_of(part)}
        self._kinds, self._functions = list(kinds.values()), _functions(kinds)
        self._definitions: list[str] = []
        self._elements = {
            kind.name: self._code.in_chain(list(self._chain(kind.layers, Scope(kind)))) for kind in self._kinds
        }
        self._network = list(self._chain(self._parts, Scope()))

    def text(self, summary: str = "") -> str:
        """Return the types of layers and the functions; the last one is `network`."""
        sections = list(self._code.types())
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
        sections = [f"{_TENSORS}\n{self.network_tensors(self._code.below(self._network))}"]
        arrays = {self._functions[kind.name]: self._elements[kind.name].entries for kind in self._kinds}
        sections += [self.block_tensors(function, entries) for function, entries in arrays.items() if entries]
        return "\n\n".join([*sections, *self._code.arrays()])

    def masks(self) -> Iterator[str]:
        """Yield the function `set_masks!`, if masks are given."""
        return self._code.masks()

    def network_tensors(self, entries: Sequence[Entry]) -> str:
        """Return the function `tensors`."""
        return _joined("tensors(model) = ", entries, "model")

    def block_tensors(self, function: str, entries: Sequence[Entry]) -> str:
        """Return the function of the arrays of a block that another function makes."""
        return _joined(f"{function}_tensors(name, block) = ", entries, "block")

    def is_shared(self, layer: spec.Layer) -> bool:
        """Return True if a layer is a variable, whose weight another one uses."""
        return isinstance(layer, spec.Named) and layer.name in self._tied

    def _chain(self, layers: Sequence[Part], scope: Scope) -> Iterator[Element]:
        """Yield the elements of a chain of these layers."""
        for before, layer, after in zip([None, *layers], layers, [*layers[1:], None], strict=False):
            if activation_of(layer) and self._code.fuses(before):
                continue
            activation = activation_of(after) if self._code.fuses(layer) else ""
            if isinstance(layer, Stage):
                yield self._stage(layer)
            elif isinstance(layer, Block):
                yield self._block(layer)
            elif self.is_shared(layer):
                yield self._shared(layer, activation, scope)
            elif isinstance(layer, spec.Residual):
                yield self._residual(layer, scope)
            else:
                yield from self._code.elements(layer, activation, scope)

    def _shared(self, layer: spec.Layer, activation: str, scope: Scope) -> Element:
        """Return the variable of a layer whose weight another one uses; the layer becomes a definition."""
        element = self._code.in_chain(list(self._code.elements(layer, activation, scope)))
        kind, place = SHARED[type(layer)]
        taken = sum(one.partition(" = ")[0].strip().startswith(kind) for one in self._definitions)
        variable = f"{kind}{taken + 1 if taken else ''}"
        self._definitions += lines(f"    {variable} = ", element.code)
        assert isinstance(layer, spec.Named)
        self._code.variables[layer.name] = f"{variable}{element.entries[0].path}.{place}"
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
                entries += [entry.below(self._code.step(index)) for entry in self._block(blocks[0]).entries]
            else:
                offset = 1 - stage.first
                place = f"n {'+' if offset > 0 else '-'} {abs(offset)}" if offset else "n"
                for one in self._block(blocks[0], f'"{series}$n"').entries:
                    last = f"{one.end} for n in {first}:{first + len(blocks) - 1}]..."
                    entries.append(Entry(f"[{place}]", f"[{one.start}", last))
            index += len(blocks)
        return Element(Call("Chain", codes), entries)

    def _residual(self, layer: spec.Residual, scope: Scope) -> Element:
        body = self._code.in_chain(list(self._chain(layer.body, scope)))
        if not layer.shortcut:
            return Element(
                Call("SkipConnection", [body.code, "+"]), [one.below(self._code.skipped) for one in body.entries]
            )
        shortcut = self._code.in_chain(list(self._chain(layer.shortcut, scope)))
        return Element(Call("Parallel", ["+", body.code, shortcut.code]), self._code.below([body, shortcut]))


def _joined(start: str, entries: Sequence[Entry], root: str) -> str:
    """Return a function of the arrays of all entries, whose paths begin at `root`."""
    calls = [f"{one.start}{root}{one.path}{one.end}" for one in entries]
    if not calls:
        return f"{start}[]"
    if len(calls) == 1 and not calls[0].endswith("..."):
        return f"{start}{calls[0]}"
    return "\n".join([f"{start}vcat(", *(f"    {call}," for call in calls), ")"])


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
    options = [f"{name} = {julia_value(block.arguments[name])}" for name in names if not is_size(name)]
    return f"{', '.join(sizes)}{'; ' if options else ''}{', '.join(options)}"
