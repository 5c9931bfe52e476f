"""The layers of a network file: records of `core.layers` as tables, and blocks of them that are used again.

What follows from what comes in may be left out: `inputs`, `channels`, `vocabulary`, and every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from msgspec import Meta

from polybench.core.errors import BadInput
from polybench.core.layer_base import Shape
from polybench.core.layers import BatchNorm, Conv, Dense, Layer, Named, Residual
from polybench.core.names import pick
from polybench.core.sequence_layers import LSTM, Embedding
from polybench.planning.network_blocks import BLOCK, DEEPEST, Blocks, Scope
from polybench.planning.network_values import Tables, shown
from polybench.planning.toml_text import Place

MOST_LAYERS = 2_000
MOST_PARAMETERS = 1 << 30
"""4 GiB of weights, of which training has four copies."""
MOST_VALUES = 1 << 27
"""What a layer puts out for one image or sequence: half a gibibyte."""

KINDS: dict[str, type[Layer]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Layer)}
"""What `type` may say, beside BLOCK."""

_INFERRED: dict[type[Layer], tuple[str, Callable[[Shape], int]]] = {
    Conv: ("inputs", lambda shape: shape[0]),
    BatchNorm: ("channels", lambda shape: shape[0]),
    Dense: ("inputs", lambda shape: shape[0]),
    LSTM: ("inputs", lambda shape: shape[-1]),
}
"""The option that is the number of channels or features that come in."""

_SIZE = Annotated[int, Meta(ge=1, le=1 << 24)]
_LIMITS: dict[str, Any] = {
    "name": Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$(?!\n)", max_length=60)],
    "rate": Annotated[float, Meta(gt=0, lt=1)],
    "epsilon": Annotated[float, Meta(gt=0, le=1)],
    "momentum": Annotated[float, Meta(gt=0, le=1)],
}
"""Of options, by name; every other number is a _SIZE."""


class _Place(NamedTuple):
    """A layer's table, and where it stands."""

    table: Mapping[str, Any]
    place: Place
    scope: Scope


def read_layers(
    tables: Tables,
    layers: Sequence[Any],
    blocks: Mapping[str, Any],
    above: Place,
    shape: Shape,
    vocabulary: int | None,
    classes: int,
) -> tuple[Layer, ...]:
    """The layers of a network that takes `shape` and tells `classes` apart.

    Args:
        tables: reads values and tells of errors.
        layers: tables, each with a `type`.
        blocks: name -> tables of the layers of a block.
        above: where the network's table is.
        shape: of one image or sequence; (time,) are tokens.
        vocabulary: how many tokens there are; None where there are none.
        classes: how many logits come out.

    Raises:
        BadInput: no such type or option, a value or shape that does not fit, a name twice, a block in itself,
            or more than any machine computes; with the line.
    """
    reader = _Reader(tables, Blocks(tables, blocks, (*above, "blocks")), vocabulary)
    place: Place = (*above, "layers")
    made, after = reader.layers(layers, place, shape, Scope())
    reader.blocks.refuse_unused()
    last = (*place, len(layers) - 1)
    if after != (classes,):
        raise tables.text.error(
            last,
            f"the last layer puts out {_by(after)}, and there are {classes} classes;"
            f' end with {{ type = "dense", outputs = {classes} }}',
        )
    if not reader.parameters:
        raise tables.text.error(last, "no layer has weights, so there is nothing to train")
    return tuple(made)


class _Reader:
    def __init__(self, tables: Tables, blocks: Blocks, vocabulary: int | None) -> None:
        self.blocks, self.parameters = blocks, 0
        self._tables, self._vocabulary = tables, vocabulary
        self._named: dict[str, _Place] = {}
        self._plain: dict[str, _Place] = {}
        self._count = 0

    def layers(self, entries: object, place: Place, shape: Shape, scope: Scope) -> tuple[list[Layer], Shape]:
        """The layers of an array of tables, and the shape that the last one puts out."""
        if not isinstance(entries, list) or not entries:
            raise self._tables.text.error(place, f"a list of layers belongs here, and not {shown(entries)}")
        scope.reserve(entries)
        made: list[Layer] = []
        for number, entry in enumerate(entries):
            at = _Place(self._tables.table(entry, (*place, number)), (*place, number), scope)
            several, shape = self._entry(at, shape)
            made += several
        return made, shape

    def _entry(self, at: _Place, shape: Shape) -> tuple[list[Layer], Shape]:
        """One table: a layer, or all of a block that it stands for."""
        kind = at.table.get("type")
        if not isinstance(kind, str):
            raise self._error(at, f"a layer has a type: {', '.join((*KINDS, BLOCK))}")
        if kind == BLOCK:
            return self._block(at, shape)
        try:
            record = pick(kind, KINDS | {BLOCK: Residual}, "type of layer")
        except BadInput as error:
            raise self._error(at, error, "type") from None
        self._count += 1
        if self._count > MOST_LAYERS:
            raise self._error(at, f"more than {MOST_LAYERS:,} layers")
        if self._vocabulary is not None and self._count == 1 and record is not Embedding:
            raise self._error(at, "the input is tokens, so the first layer is an embedding")
        layer = self._residual(at, shape) if record is Residual else self._layer(at, record, shape)
        return [layer], self._after(at, layer, shape)

    def _block(self, at: _Place, shape: Shape) -> tuple[list[Layer], Shape]:
        made: list[Layer] = []
        for layers, place, scope in self.blocks.expand(at.table, at.place, at.scope):
            several, shape = self.layers(layers, place, shape, scope)
            scope.refuse_unused(self._tables.text, at.place)
            made += several
        return made, shape

    def _residual(self, at: _Place, shape: Shape) -> Residual:
        self._tables.known(at.table, at.place, {"type": 0, "body": 0, "shortcut": 0}, "option of residual")
        if sum(isinstance(key, str) and key in ("body", "shortcut") for key in at.place) >= DEEPEST:
            raise self._error(at, f"more than {DEEPEST} residual blocks in each other")
        if "body" not in at.table:
            raise self._error(at, "a residual block has a body, a list of layers")
        body, _ = self.layers(at.table["body"], (*at.place, "body"), shape, at.scope)
        shortcut = at.table.get("shortcut", [])
        past = self.layers(shortcut, (*at.place, "shortcut"), shape, at.scope)[0] if shortcut != [] else []
        return Residual(tuple(body), tuple(past))

    def _layer(self, at: _Place, record: type[Layer], shape: Shape) -> Layer:
        kind, hints = str(record.__struct_config__.tag), get_type_hints(record)
        self._tables.known(at.table, at.place, {"type": 0} | hints, f"option of {kind}")
        values = {
            key: self._tables.value(
                at.scope.value(value, self._tables.text, (*at.place, key)),
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
        self._tables.complete(values, at.place, record)
        try:
            return record(**values)
        except ValueError as error:
            raise self._error(at, error) from None

    def _tokens(self, at: _Place, values: dict[str, Any]) -> None:
        """An embedding is the first layer, and knows all tokens of the input."""
        if self._vocabulary is None or self._count > 1:
            raise self._error(
                at,
                "an embedding takes tokens: it is the first layer, and the input has a vocabulary",
            )
        if values.setdefault("vocabulary", self._vocabulary) != self._vocabulary:
            raise self._error(
                at,
                f"the input has {self._vocabulary:,} tokens, this {values['vocabulary']:,}; leave it out",
                "vocabulary",
            )

    def _name(self, at: _Place, kind: str, given: str | None) -> str:
        name = at.scope.name(given, kind, self._named)
        plain = name.replace(".", "_")  # as Keras has it
        if plain in self._plain:
            first = self._tables.text.line(self._plain[plain].place)
            raise self._error(at, f"{name} is the name of the layer in line {first} already", "name")
        self._named[name] = self._plain[plain] = at
        return name

    def _after(self, at: _Place, layer: Layer, shape: Shape) -> Shape:
        """The shape that it puts out, if it fits and nothing is larger than it may be."""
        try:
            after = layer.output_shape(shape)
        except ValueError as error:
            called = layer.name if isinstance(layer, Named) else layer.__struct_config__.tag
            raise self._error(at, f"{error} ({called}; {_by(shape)} comes in)") from None
        if math.prod(after) > MOST_VALUES:
            raise self._error(
                at, f"this layer puts out {_by(after)}: {math.prod(after):,} values for one input"
            )
        if not isinstance(layer, Residual):
            self.parameters += sum(map(math.prod, layer.weight_shapes().values()))
        if self.parameters > MOST_PARAMETERS:
            raise self._error(at, f"with this layer there are {self.parameters:,} weights, too many to train")
        return after

    def _error(self, at: _Place, problem: object, *key: str) -> BadInput:
        return self._tables.text.error((*at.place, *key), f"{problem}{at.scope.used(self._tables.text)}")


def _limited(option: str, hint: Any) -> Any:
    """The type of an option, with the limits that every engine keeps to."""
    if option in _LIMITS:
        return _LIMITS[option]
    if option == "padding":
        return hint.__args__[0] | Annotated[int, Meta(ge=0, le=1 << 12)]
    return _SIZE if hint is int else hint


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape))
