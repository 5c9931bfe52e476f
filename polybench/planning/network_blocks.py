"""Expands the blocks of a network file: reusable lists of layers with parameters."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from polybench.errors import BadInput, lookup_or_suggest
from polybench.planning.network_values import StructReader
from polybench.planning.toml_text import KeyPath, TomlText

BLOCK = "block"
"""The `type` of a table that uses a block."""

PLACEHOLDER = "$"
"""First character of a value that the use of a block provides: outputs = "$channels"."""

MAX_DEPTH = 16
"""Maximum depth of nested blocks, and of nested residual blocks."""

_Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$(?!\n)", max_length=30)]


class _Use(msgspec.Struct, frozen=True):
    """The use of a block, repeated `times` in sequence; `values` is `with` in the file."""

    block: str
    name: _Word | None = None
    times: Annotated[int, Meta(ge=1, le=1_000)] = 1
    values: dict[str, Any] = {}


class Scope:
    """Names and values of layers in the network itself, or in one use of a block.

    Args:
        prefix: prefix of layer names.
        values: values of placeholders.
        trail: enclosing blocks, outermost first.
        uses: key paths of their uses.
    """

    def __init__(
        self,
        prefix: str = "",
        values: Mapping[str, Any] | None = None,
        trail: tuple[str, ...] = (),
        uses: tuple[KeyPath, ...] = (),
    ) -> None:
        self.prefix, self.trail, self.uses = prefix, trail, uses
        self._values, self._needed = dict(values or {}), set[str]()
        self._own: set[str] = set()
        self._numbers: dict[str, int] = {}

    def reserve(self, entries: Sequence[Any]) -> None:
        """Reserve the explicit names of these layers, so that no automatic name equals one."""
        for entry in entries:
            if isinstance(entry, dict):
                self._own.add(str(entry.get("name")))
                for branch in (entry.get("body"), entry.get("shortcut")):
                    self.reserve(branch if isinstance(branch, list) else ())

    def name(self, given: str | None, kind: str, taken: Container[str]) -> str:
        """Return the full name of a layer: the given one, or its kind with the next number."""
        while given is None:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            numbered = f"{kind}{self._numbers[kind]}"
            if numbered not in self._own and self.prefix + numbered not in taken:
                given = numbered
        return self.prefix + given

    def value(self, value: Any, text: TomlText, place: KeyPath) -> Any:
        """Replace a placeholder by its value; return any other value unchanged."""
        if not isinstance(value, str) or not value.startswith(PLACEHOLDER):
            return value
        name = value.removeprefix(PLACEHOLDER)
        if not self.trail:
            raise text.error(place, f"{value!r} is a placeholder, which only works inside a block")
        self._needed.add(name)
        try:
            return lookup_or_suggest(name, self._values, f"value of block {self.trail[-1]}")
        except BadInput as error:
            raise text.error(place, f"{error}{self.describe_use(text)}") from None

    def reject_unused(self, text: TomlText, place: KeyPath) -> None:
        """Raise BadInput if the use provides a value that the block does not need."""
        for name in self._values:
            if name not in self._needed:
                problem = f"block {self.trail[-1]} has no {PLACEHOLDER + name!r}; it has"
                has = ", ".join(sorted(PLACEHOLDER + one for one in self._needed)) or "no placeholders"
                raise text.error((*place, "with", name), f"{problem} {has}")

    def describe_use(self, text: TomlText) -> str:
        """Describe the use of the enclosing block for errors; empty outside of blocks."""
        return f" (in block {self.trail[-1]}, used in line {text.line(self.uses[-1])})" if self.trail else ""


class Blocks:
    """The blocks of a file, by name.

    Args:
        reader: reads values and reports errors.
        blocks: layers by block name.
        place: key path of the table of blocks.
    """

    def __init__(self, reader: StructReader, blocks: Mapping[str, Any], place: KeyPath) -> None:
        self._reader, self._blocks, self._place = reader, blocks, place
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def expand(self, table: Mapping[str, Any], place: KeyPath, scope: Scope) -> Iterator[tuple[Any, KeyPath, Scope]]:
        """Yield the layers of a use, once per repetition: (tables, key path, scope)."""
        renamed = {"values" if key == "with" else key: value for key, value in table.items() if key != "type"}
        text = self._reader.text
        self._reader.check_keys(
            table, place, dict.fromkeys(("type", "block", "name", "times", "with")), "option of block"
        )
        self._reader.table(table.get("with", {}), (*place, "with"))
        use = self._reader.read(renamed, place, _Use, "option of block")
        try:
            layers = lookup_or_suggest(use.block, self._blocks, "block")
        except BadInput as error:
            raise text.error((*place, "block"), error) from None
        if use.block in scope.trail:
            path = " > ".join((*scope.trail, use.block))
            raise text.error(place, f"block {use.block} contains itself: {path}")
        if len(scope.trail) == MAX_DEPTH:
            raise text.error(place, f"more than {MAX_DEPTH} nested blocks")
        self._used.add(use.block)
        values = {name: scope.value(value, text, (*place, "with", name)) for name, value in use.values.items()}
        name = use.name or self._numbered(scope.prefix + use.block)
        for time in range(1, use.times + 1):
            prefix = f"{scope.prefix}{name}.{f'{time}.' if use.times > 1 else ''}"
            inner = Scope(prefix, values, (*scope.trail, use.block), (*scope.uses, place))
            yield layers, (*self._place, use.block), inner

    def reject_unused(self) -> None:
        """Raise BadInput if a block is not used, because its content would not be checked."""
        for name in self._blocks:
            if name not in self._used:
                text = self._reader.text
                raise text.error((*self._place, name), f"block {name} is not used: remove it")

    def _numbered(self, name: str) -> str:
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return f"{name.rpartition('.')[2]}{self._numbers[name]}"
