"""Reads the layers of a network file: tables with the fields of `networks.layers` records, and blocks.

Options that follow from the input may be omitted: `inputs`, `channels`, `vocabulary`, and every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from msgspec import Meta

from polybench.errors import BadInput, lookup_or_suggest
from polybench.networks.layers import LSTM, BatchNorm, Conv, Dense, Embedding, Layer, Named, Residual, Shape
from polybench.planning.network_blocks import BLOCK, MAX_DEPTH, Blocks, Scope
from polybench.planning.network_values import StructReader, shorten
from polybench.planning.toml_text import KeyPath

MAX_LAYERS = 2_000
MAX_PARAMETERS = 1 << 30
"""4 GiB of weights; training needs four copies."""
MAX_VALUES = 1 << 27
"""Maximum outputs of a layer for one image or sequence: half a gibibyte."""

KINDS: dict[str, type[Layer]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Layer)}
"""Valid values of `type`, without BLOCK."""

_INFERRED: dict[type[Layer], tuple[str, Callable[[Shape], int]]] = {
    Conv: ("inputs", lambda shape: shape[0]),
    BatchNorm: ("channels", lambda shape: shape[0]),
    Dense: ("inputs", lambda shape: shape[0]),
    LSTM: ("inputs", lambda shape: shape[-1]),
}
"""Options that equal the number of input channels or features."""

_SIZE = Annotated[int, Meta(ge=1, le=1 << 24)]
_LIMITS: dict[str, Any] = {
    "name": Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$(?!\n)", max_length=60)],
    "rate": Annotated[float, Meta(gt=0, lt=1)],
    "epsilon": Annotated[float, Meta(gt=0, le=1)],
    "momentum": Annotated[float, Meta(gt=0, le=1)],
}
"""Limits of options by name; every other number is a _SIZE."""


class _LayerPath(NamedTuple):
    """A layer's table, its key path and its scope."""

    table: Mapping[str, Any]
    place: KeyPath
    scope: Scope


def read_layers(
    reader: StructReader,
    layers: Sequence[Any],
    blocks: Mapping[str, Any],
    above: KeyPath,
    shape: Shape,
    vocabulary: int | None,
    classes: int,
) -> tuple[Layer, ...]:
    """Read the layers of a network with inputs of `shape` and `classes` outputs.

    Args:
        reader: reads values and reports errors.
        layers: tables, each with a `type`.
        blocks: tables of layers by block name.
        above: key path of the network's table.
        shape: shape of one image or sequence; (time,) for tokens.
        vocabulary: number of tokens; None without tokens.
        classes: number of logits.

    Raises:
        BadInput: an unknown type or option, a value or shape that does not fit, a repeated name, a recursive
            block, or a network that is too large; with the line.
    """
    layers_reader = _LayersReader(reader, Blocks(reader, blocks, (*above, "blocks")), vocabulary)
    place: KeyPath = (*above, "layers")
    made, after = layers_reader.layers(layers, place, shape, Scope())
    layers_reader.blocks.reject_unused()
    last = (*place, len(layers) - 1)
    if after != (classes,):
        raise reader.text.error(
            last,
            f"the last layer has {_by(after)} outputs, but there are {classes} classes:"
            f' end with {{ type = "dense", outputs = {classes} }}',
        )
    if not layers_reader.parameters:
        raise reader.text.error(last, "the network has no weights to train")
    return tuple(made)


class _LayersReader:
    def __init__(self, reader: StructReader, blocks: Blocks, vocabulary: int | None) -> None:
        self.blocks, self.parameters = blocks, 0
        self._reader, self._vocabulary = reader, vocabulary
        self._named: dict[str, _LayerPath] = {}
        self._without_dots: dict[str, _LayerPath] = {}
        self._count = 0

    def layers(self, entries: object, place: KeyPath, shape: Shape, scope: Scope) -> tuple[list[Layer], Shape]:
        """Read an array of tables; return the layers and the output shape of the last."""
        if not isinstance(entries, list) or not entries:
            raise self._reader.text.error(place, f"expected a list of layers, got {shorten(entries)}")
        scope.reserve(entries)
        made: list[Layer] = []
        for number, entry in enumerate(entries):
            at = _LayerPath(self._reader.table(entry, (*place, number)), (*place, number), scope)
            several, shape = self._entry(at, shape)
            made += several
        return made, shape

    def _entry(self, at: _LayerPath, shape: Shape) -> tuple[list[Layer], Shape]:
        """Read one table: a layer, or all layers of a block."""
        kind = at.table.get("type")
        if not isinstance(kind, str):
            raise self._error(at, f"the layer needs a type: {', '.join((*KINDS, BLOCK))}")
        if kind == BLOCK:
            return self._block(at, shape)
        try:
            record = lookup_or_suggest(kind, KINDS | {BLOCK: Residual}, "type of layer")
        except BadInput as error:
            raise self._error(at, error, "type") from None
        self._count += 1
        if self._count > MAX_LAYERS:
            raise self._error(at, f"more than {MAX_LAYERS:,} layers")
        if self._vocabulary is not None and self._count == 1 and record is not Embedding:
            raise self._error(at, "the input is tokens, so the first layer must be an embedding")
        layer = self._residual(at, shape) if record is Residual else self._layer(at, record, shape)
        return [layer], self._after(at, layer, shape)

    def _block(self, at: _LayerPath, shape: Shape) -> tuple[list[Layer], Shape]:
        made: list[Layer] = []
        for layers, place, scope in self.blocks.expand(at.table, at.place, at.scope):
            several, shape = self.layers(layers, place, shape, scope)
            scope.reject_unused(self._reader.text, at.place)
            made += several
        return made, shape

    def _residual(self, at: _LayerPath, shape: Shape) -> Residual:
        self._reader.check_keys(at.table, at.place, {"type": 0, "body": 0, "shortcut": 0}, "option of residual")
        if sum(isinstance(key, str) and key in ("body", "shortcut") for key in at.place) >= MAX_DEPTH:
            raise self._error(at, f"more than {MAX_DEPTH} nested residual blocks")
        if "body" not in at.table:
            raise self._error(at, "a residual block needs a body, a list of layers")
        body, _ = self.layers(at.table["body"], (*at.place, "body"), shape, at.scope)
        shortcut = at.table.get("shortcut", [])
        past = self.layers(shortcut, (*at.place, "shortcut"), shape, at.scope)[0] if shortcut != [] else []
        return Residual(tuple(body), tuple(past))

    def _layer(self, at: _LayerPath, record: type[Layer], shape: Shape) -> Layer:
        kind, hints = str(record.__struct_config__.tag), get_type_hints(record)
        self._reader.check_keys(at.table, at.place, {"type": 0} | hints, f"option of {kind}")
        values = {
            key: self._reader.value(
                at.scope.value(value, self._reader.text, (*at.place, key)),
                (*at.place, key),
                _limited(key, hint),
            )
            for key, hint in hints.items()
            if (value := at.table.get(key)) is not None
        }
        if "name" in hints:
            values["name"] = self._name(at, kind, values.get("name"))
        if record in _INFERRED and shape:
            option, of = _INFERRED[record]
            values.setdefault(option, of(shape))
        if record is Embedding:
            self._tokens(at, values)
        self._reader.check_required(values, at.place, record)
        try:
            return record(**values)
        except ValueError as error:
            raise self._error(at, error) from None

    def _tokens(self, at: _LayerPath, values: dict[str, Any]) -> None:
        """Check that an embedding is the first layer and covers all tokens of the input."""
        if self._vocabulary is None or self._count > 1:
            raise self._error(
                at,
                "an embedding needs tokens: it must be the first layer, and the input needs a vocabulary",
            )
        if values.setdefault("vocabulary", self._vocabulary) != self._vocabulary:
            raise self._error(
                at,
                f"the input has {self._vocabulary:,} tokens, this layer {values['vocabulary']:,}: omit the option",
                "vocabulary",
            )

    def _name(self, at: _LayerPath, kind: str, given: str | None) -> str:
        name = at.scope.name(given, kind, self._named)
        without_dots = name.replace(".", "_")  # Keras allows no dots
        if without_dots in self._without_dots:
            first = self._reader.text.line(self._without_dots[without_dots].place)
            raise self._error(at, f"the layer in line {first} already has the name {name}", "name")
        self._named[name] = self._without_dots[without_dots] = at
        return name

    def _after(self, at: _LayerPath, layer: Layer, shape: Shape) -> Shape:
        """Return the output shape of a layer; raise BadInput if it does not fit or is too large."""
        try:
            after = layer.output_shape(shape)
        except ValueError as error:
            called = layer.name if isinstance(layer, Named) else layer.__struct_config__.tag
            raise self._error(at, f"{error} ({called}; its input is {_by(shape)})") from None
        if math.prod(after) > MAX_VALUES:
            raise self._error(at, f"this layer has {_by(after)} outputs: {math.prod(after):,} values per input")
        if not isinstance(layer, Residual):
            self.parameters += sum(map(math.prod, layer.weight_shapes().values()))
        if self.parameters > MAX_PARAMETERS:
            raise self._error(at, f"too many weights: {self.parameters:,} with this layer")
        return after

    def _error(self, at: _LayerPath, problem: object, *key: str) -> BadInput:
        return self._reader.text.error((*at.place, *key), f"{problem}{at.scope.describe_use(self._reader.text)}")


def _limited(option: str, hint: Any) -> Any:
    """Return the type of an option, with the limits of all engines."""
    if option in _LIMITS:
        return _LIMITS[option]
    if option == "padding":
        return hint.__args__[0] | Annotated[int, Meta(ge=0, le=1 << 12)]
    return _SIZE if hint is int else hint


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape))
