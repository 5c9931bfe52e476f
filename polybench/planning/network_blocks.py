"""Blocks of a network file: layers that are written once and used again, with other names and values."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.planning.network_values import Tables
from polybench.planning.toml_text import Place, TomlText

BLOCK = "block"
"""The type of a table that stands for all layers of a block."""

PLACEHOLDER = "$"
"""What begins a value that the use of a block gives: outputs = "$channels"."""

DEEPEST = 16
"""Blocks in each other, and residual blocks as well."""

_Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$(?!\n)", max_length=30)]


class _Use(msgspec.Struct, frozen=True):
    """What a use says. `times` is how often, one behind the other; `values` is `with` in the file."""

    block: str
    name: _Word | None = None
    times: Annotated[int, Meta(ge=1, le=1_000)] = 1
    values: dict[str, Any] = {}


class Scope:
    """Where layers stand: in the network itself, or in one use of a block.

    Args:
        prefix: of the names of its layers.
        values: what placeholders stand for.
        trail: the blocks that it is in, outermost first.
        uses: where they are used.
    """

    def __init__(
        self,
        prefix: str = "",
        values: Mapping[str, Any] | None = None,
        trail: tuple[str, ...] = (),
        uses: tuple[Place, ...] = (),
    ) -> None:
        self.prefix, self.trail, self.uses = prefix, trail, uses
        self._values, self._wanted = dict(values or {}), set[str]()
        self._own: set[str] = set()
        self._numbers: dict[str, int] = {}

    def reserve(self, entries: Sequence[Any]) -> None:
        """Number no layer so that it has one of the names that these are given."""
        for entry in entries:
            if isinstance(entry, dict):
                self._own.add(str(entry.get("name")))
                for branch in (entry.get("body"), entry.get("shortcut")):
                    self.reserve(branch if isinstance(branch, list) else ())

    def name(self, given: str | None, kind: str, taken: Container[str]) -> str:
        """The full name of a layer: the one that it is given, or its kind with the next number."""
        while given is None:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            numbered = f"{kind}{self._numbers[kind]}"
            if numbered not in self._own and self.prefix + numbered not in taken:
                given = numbered
        return self.prefix + given

    def value(self, value: Any, text: TomlText, place: Place) -> Any:
        """What a placeholder stands for; any other value as it is."""
        if not isinstance(value, str) or not value.startswith(PLACEHOLDER):
            return value
        name = value.removeprefix(PLACEHOLDER)
        if not self.trail:
            raise text.error(place, f"{value!r} belongs into a block, whose use says what it is")
        self._wanted.add(name)
        try:
            return pick(name, self._values, f"value of block {self.trail[-1]}")
        except BadInput as error:
            raise text.error(place, f"{error}{self.used(text)}") from None

    def refuse_unused(self, text: TomlText, place: Place) -> None:
        """Raise BadInput where the use gives a value that no layer of the block takes."""
        for name in self._values:
            if name not in self._wanted:
                problem = f"block {self.trail[-1]} has no {PLACEHOLDER + name!r}; it has"
                has = ", ".join(sorted(PLACEHOLDER + one for one in self._wanted)) or "none at all"
                raise text.error((*place, "with", name), f"{problem} {has}")

    def used(self, text: TomlText) -> str:
        """Where the block is used that it is in, for errors; nothing outside of blocks."""
        return f" (in block {self.trail[-1]}, used in line {text.line(self.uses[-1])})" if self.trail else ""


class Blocks:
    """The blocks of a file, by name.

    Args:
        tables: reads values and tells of errors.
        blocks: name -> its layers.
        place: of them all.
    """

    def __init__(self, tables: Tables, blocks: Mapping[str, Any], place: Place) -> None:
        self._tables, self._blocks, self._place = tables, blocks, place
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def expand(
        self, table: Mapping[str, Any], place: Place, scope: Scope
    ) -> Iterator[tuple[Any, Place, Scope]]:
        """The layers that a use stands for, once for each time: their tables, place and scope."""
        renamed = {"values" if key == "with" else key: value for key, value in table.items() if key != "type"}
        text = self._tables.text
        self._tables.known(
            table, place, dict.fromkeys(("type", "block", "name", "times", "with")), "option of block"
        )
        self._tables.table(table.get("with", {}), (*place, "with"))
        use = self._tables.read(renamed, place, _Use, "option of block")
        try:
            layers = pick(use.block, self._blocks, "block")
        except BadInput as error:
            raise text.error((*place, "block"), error) from None
        if use.block in scope.trail:
            way = " > ".join((*scope.trail, use.block))
            raise text.error(place, f"block {use.block} contains itself: {way}")
        if len(scope.trail) == DEEPEST:
            raise text.error(place, f"more than {DEEPEST} blocks in each other")
        self._used.add(use.block)
        values = {
            name: scope.value(value, text, (*place, "with", name)) for name, value in use.values.items()
        }
        name = use.name or self._numbered(scope.prefix + use.block)
        for time in range(1, use.times + 1):
            prefix = f"{scope.prefix}{name}.{f'{time}.' if use.times > 1 else ''}"
            inner = Scope(prefix, values, (*scope.trail, use.block), (*scope.uses, place))
            yield layers, (*self._place, use.block), inner

    def refuse_unused(self) -> None:
        """Raise BadInput where no layer stands for a block: what it says would be checked by nobody."""
        for name in self._blocks:
            if name not in self._used:
                text = self._tables.text
                raise text.error((*self._place, name), f"block {name} is used by no layer; remove it")

    def _numbered(self, name: str) -> str:
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return f"{name.rpartition('.')[2]}{self._numbers[name]}"
