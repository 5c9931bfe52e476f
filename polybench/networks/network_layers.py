"""Reads the layers of a network file: tables with the fields of `networks.layers` records, and blocks.

Options that follow from the input may be omitted: `inputs`, `channels`, `vocabulary`, and every name. A block is
a reusable list of layers with placeholders, such as outputs = "$channels", whose values its use provides.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from polybench.errors import BadInput, lookup_or_suggest
from polybench.networks.layers import Layer, Named, Residual, Shape, check_layer, weight_shapes
from polybench.networks.toml_text import KeyPath, TomlText, shorten

MAX_LAYERS = 2_000
MAX_PARAMETERS = 1 << 30
"""4 GiB of weights; training needs four copies."""
MAX_VALUES = 1 << 27
"""Maximum outputs of a layer for one image or sequence: half a gibibyte."""
MAX_DEPTH = 16
"""Maximum depth of nested blocks, and of nested residual blocks."""

_KINDS: dict[str, type[Layer]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Layer)}
_BLOCK = "block"
"""The `type` of a table that uses a block."""

_LayerName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$(?!\n)", max_length=60)]
_Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$(?!\n)", max_length=30)]


class _Use(msgspec.Struct, frozen=True):
    """The use of a block, repeated `times` in sequence."""

    block: str
    name: _Word | None = None
    times: Annotated[int, Meta(ge=1, le=1_000)] = 1


@dataclass
class _Scope:
    """The network itself, or one use of a block: names and placeholders of its layers.

    `blocks` are the enclosing blocks, outermost first; `use` is the key path of the innermost one's use.
    `read_values` are the placeholders that its layers contain. `explicit_names` are given in the file, so that no
    automatic name equals one; `numbers` are the last ones of automatic names.
    """

    prefix: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()
    use: KeyPath = ()
    read_values: set[str] = field(default_factory=set)
    explicit_names: set[str] = field(default_factory=set)
    numbers: Counter[str] = field(default_factory=Counter)


class _Entry(NamedTuple):
    """A layer's table, its key path and its scope."""

    table: Mapping[str, Any]
    place: KeyPath
    scope: _Scope


class LayerReader:
    """Reads the layers of one network, whose table is at the key path `above`.

    `blocks` are lists of layers by block name; `vocabulary` is the number of tokens of the input, None without tokens.
    """

    def __init__(self, text: TomlText, above: KeyPath, blocks: Mapping[str, Any], vocabulary: int | None) -> None:
        self._text, self._above, self._blocks, self._vocabulary = text, above, blocks, vocabulary
        self._layer_count = self._parameters = 0
        self._weights: dict[str, Shape] = {}
        """Shapes of the tensors of the layers so far."""
        self._input_shape: Shape = ()
        self._places: dict[str, KeyPath] = {}
        """Key path of each layer by its name with _ for dots, because Keras allows no dots."""
        self._used_blocks: Counter[str] = Counter()
        self._unnamed_uses: Counter[str] = Counter()

    def read(self, layers: list[Any], shape: Shape, classes: int) -> tuple[Layer, ...]:
        """Read the layers of a network with inputs of `shape`, (time,) for tokens, and `classes` outputs.

        There may be one output, or one at each position of a sequence.

        BadInput has the line of an unknown type or option, a value or shape that does not fit, a repeated name, a
        recursive block, or a network that is too large.
        """
        place: KeyPath = (*self._above, "layers")
        self._input_shape = shape
        made, after = self._read_list(layers, place, shape, _Scope())
        for name in self._blocks:  # the content of an unused one would not be checked
            if name not in self._used_blocks:
                raise self._text.error((*self._above, "blocks", name), f"block {name} is not used: remove it")
        last = (*place, len(layers) - 1)
        if len(after) > 2 or after[-1] != classes:
            raise self._text.error(
                last,
                f"the last layer has {format_shape(after)} outputs, but there are {classes} classes:"
                f' end with {{ type = "dense", outputs = {classes} }}',
            )
        if not self._parameters:
            raise self._text.error(last, "the network has no weights to train")
        return tuple(made)

    def _read_list(self, entries: object, place: KeyPath, shape: Shape, scope: _Scope) -> tuple[list[Layer], Shape]:
        """Read an array of tables; return the layers and the output shape of the last."""
        if not isinstance(entries, list) or not entries:
            raise self._text.error(place, f"expected a list of layers, got {shorten(entries)}")
        scope.explicit_names |= set(_explicit_names(entries))
        made: list[Layer] = []
        for number, entry in enumerate(entries):
            at = _Entry(self._text.expect_table(entry, (*place, number)), (*place, number), scope)
            several, shape = self._read_entry(at, shape)
            made += several
        return made, shape

    def _read_entry(self, at: _Entry, shape: Shape) -> tuple[list[Layer], Shape]:
        """Read one table: a layer, or all layers of a block."""
        kind = at.table.get("type")
        if not isinstance(kind, str):
            raise self._error(at, f"the layer needs a type: {', '.join((*_KINDS, _BLOCK))}")
        if kind == _BLOCK:
            return self._read_block(at, shape)
        with self._errors(at, "type"):
            record = lookup_or_suggest(kind, _KINDS | {_BLOCK: Residual}, "type of layer")
        self._layer_count += 1
        if self._layer_count > MAX_LAYERS:
            raise self._error(at, f"more than {MAX_LAYERS:,} layers")
        if self._vocabulary is not None and self._layer_count == 1 and not record.is_lookup:
            raise self._error(at, "the input is tokens, so the first layer must be an embedding")
        layer = self._read_residual(at, shape) if record is Residual else self._read_layer(at, record, shape)
        return [layer], self._output_shape(at, layer, shape)

    def _read_block(self, at: _Entry, shape: Shape) -> tuple[list[Layer], Shape]:
        text, scope = self._text, at.scope
        self._text.check_keys(at.table, at.place, ("type", "block", "name", "times", "with"), "option of block")
        options = {key: value for key, value in at.table.items() if key not in ("type", "with")}
        given = text.expect_table(at.table.get("with", {}), (*at.place, "with"))
        use = text.read_struct(options, at.place, _Use, "option of block")
        with text.errors_at((*at.place, "block")):
            layers = lookup_or_suggest(use.block, self._blocks, "block")
        trail = (*scope.blocks, use.block)
        if use.block in scope.blocks:
            raise text.error(at.place, f"block {use.block} contains itself: {' > '.join(trail)}")
        if len(scope.blocks) == MAX_DEPTH:
            raise text.error(at.place, f"more than {MAX_DEPTH} nested blocks")
        self._used_blocks[use.block] += 1
        values = {name: self._fill_in(value, at, "with", name) for name, value in given.items()}
        name = use.name
        if name is None:
            self._unnamed_uses[scope.prefix + use.block] += 1
            name = f"{use.block}{self._unnamed_uses[scope.prefix + use.block]}"
        made: list[Layer] = []
        for time in range(1, use.times + 1):
            prefix = f"{scope.prefix}{name}.{f'{time}.' if use.times > 1 else ''}"
            inner = _Scope(prefix, values, trail, at.place)
            several, shape = self._read_list(layers, (*self._above, "blocks", use.block), shape, inner)
            made += several
            for unused in [name for name in values if name not in inner.read_values]:
                has = ", ".join(sorted(f"${name}" for name in inner.read_values)) or "no placeholders"
                problem = f"block {use.block} has no '${unused}'; it has {has}"
                raise text.error((*at.place, "with", unused), problem)
        return made, shape

    def _read_residual(self, at: _Entry, shape: Shape) -> Residual:
        self._text.check_keys(at.table, at.place, ("type", "body", "shortcut"), "option of residual")
        if sum(key in ("body", "shortcut") for key in at.place) >= MAX_DEPTH:
            raise self._error(at, f"more than {MAX_DEPTH} nested residual blocks")
        if "body" not in at.table:
            raise self._error(at, "a residual block needs a body, a list of layers")
        body, _ = self._read_list(at.table["body"], (*at.place, "body"), shape, at.scope)
        shortcut: list[Layer] = []
        if at.table.get("shortcut", []) != []:
            shortcut, _ = self._read_list(at.table["shortcut"], (*at.place, "shortcut"), shape, at.scope)
        return Residual(tuple(body), tuple(shortcut))

    def _read_layer(self, at: _Entry, record: type[Layer], shape: Shape) -> Layer:
        kind, hints = str(record.__struct_config__.tag), get_type_hints(record, include_extras=True)
        self._text.check_keys(at.table, at.place, ("type", *hints), f"option of {kind}")
        values: dict[str, Any] = {}
        for key, hint in hints.items():
            if (value := at.table.get(key)) is not None:
                filled = self._fill_in(value, at, key)
                values[key] = self._text.read_value(filled, (*at.place, key), _LayerName if key == "name" else hint)
        if "name" in hints:
            values["name"] = self._name(at, kind, values.get("name"))
        if shape:
            values = {option: shape[axis] for option, axis in record.inferred.items()} | values
        if record.is_lookup:
            self._check_tokens(at, values)
        self._text.check_required(values, at.place, record)
        with self._errors(at):
            layer = record(**values)
            check_layer(layer, self._weights, self._input_shape)
        self._weights |= weight_shapes([layer])
        return layer

    def _check_tokens(self, at: _Entry, values: dict[str, Any]) -> None:
        """Check that an embedding is the first layer and covers all tokens of the input."""
        if self._vocabulary is None or self._layer_count > 1:
            raise self._error(
                at, "an embedding needs tokens: it must be the first layer, and the input needs a vocabulary"
            )
        if values.setdefault("vocabulary", self._vocabulary) != self._vocabulary:
            raise self._error(
                at,
                f"the input has {self._vocabulary:,} tokens, this layer {values['vocabulary']:,}: omit the option",
                "vocabulary",
            )

    def _fill_in(self, value: Any, at: _Entry, *key: str) -> Any:
        """Replace a placeholder by its value; return any other value unchanged."""
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        scope = at.scope
        if not scope.blocks:
            raise self._error(at, f"{value!r} is a placeholder, which only works inside a block", *key)
        name = value.removeprefix("$")
        scope.read_values.add(name)
        with self._errors(at, *key):
            return lookup_or_suggest(name, scope.values, f"value of block {scope.blocks[-1]}")

    def _name(self, at: _Entry, kind: str, given: str | None) -> str:
        """Return the full name of a layer: the given one, or its kind with the next number."""
        scope = at.scope
        while given is None:
            scope.numbers[kind] += 1
            numbered = f"{kind}{scope.numbers[kind]}"
            if numbered not in scope.explicit_names and _without_dots(scope.prefix + numbered) not in self._places:
                given = numbered
        name = scope.prefix + given
        first = self._places.setdefault(_without_dots(name), at.place)
        if first is not at.place:
            raise self._error(at, f"the layer in line {self._text.line(first)} already has the name {name}", "name")
        return name

    def _output_shape(self, at: _Entry, layer: Layer, shape: Shape) -> Shape:
        """Return the output shape of a layer; raise BadInput if it does not fit or is too large."""
        called = layer.name if isinstance(layer, Named) else layer.__struct_config__.tag
        with self._errors(at, suffix=f" ({called}; its input is {format_shape(shape)})"):
            after = layer.output_shape(shape)
        if math.prod(after) > MAX_VALUES:
            raise self._error(
                at, f"this layer has {format_shape(after)} outputs: {math.prod(after):,} values per input"
            )
        if not isinstance(layer, Residual):
            self._parameters += sum(map(math.prod, layer.weight_shapes().values()))
        if self._parameters > MAX_PARAMETERS:
            raise self._error(at, f"too many weights: {self._parameters:,} with this layer")
        return after

    def _describe_use(self, scope: _Scope) -> str:
        """Describe the use of the enclosing block for errors; empty outside of blocks."""
        return f" (in block {scope.blocks[-1]}, used in line {self._text.line(scope.use)})" if scope.blocks else ""

    @contextlib.contextmanager
    def _errors(self, at: _Entry, *key: str, suffix: str = "") -> Iterator[None]:
        try:
            yield
        except (BadInput, ValueError) as error:
            raise self._error(at, f"{error}{suffix}", *key) from None

    def _error(self, at: _Entry, problem: str, *key: str) -> BadInput:
        return self._text.error((*at.place, *key), problem + self._describe_use(at.scope))


def _explicit_names(entries: Iterable[Any]) -> Iterable[str]:
    """Yield the names that are given in the file, also inside residual blocks."""
    for entry in entries:
        if isinstance(entry, dict):
            yield str(entry.get("name"))
            for branch in (entry.get("body"), entry.get("shortcut")):
                yield from _explicit_names(branch if isinstance(branch, list) else ())


def _without_dots(name: str) -> str:
    return name.replace(".", "_")


def format_shape(shape: Shape) -> str:
    """Format a shape: 3 x 32 x 32."""
    return " x ".join(map(str, shape))
