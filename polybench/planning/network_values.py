"""Converts tables of a TOML file into structs; errors have the line of the value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from polybench.errors import BadInput, format_validation_error, lookup_or_suggest
from polybench.planning.toml_text import KeyPath, TomlText

T = TypeVar("T", bound=msgspec.Struct)

_TEXTS = {
    "name": "expected a short name of letters, digits and . _ - that starts with a letter",
    "summary": "expected one line of at most 200 characters",
}
"""Expected form of a text, by key."""


class StructReader(NamedTuple):
    """Reads the tables of one text."""

    text: TomlText

    def read(self, table: object, place: KeyPath, kind: type[T], what: str) -> T:
        """Convert a table to a struct.

        Args:
            table: values by field name.
            place: key path of the table.
            kind: type of the struct.
            what: the word for a key in errors.

        Raises:
            BadInput: with the line of an unknown key, an invalid value, or a table without a required key.
        """
        keys = self.table(table, place)
        hints = get_type_hints(kind, include_extras=True)
        self.check_keys(keys, place, hints, what)
        values = {key: self.value(value, (*place, key), hints[key]) for key, value in keys.items()}
        self.check_required(values, place, kind)
        return kind(**values)

    def table(self, value: object, place: KeyPath) -> Mapping[str, Any]:
        """Return the value if it is a table; otherwise raise BadInput."""
        if not isinstance(value, dict):
            raise self.text.error(place, f"expected a table with keys and values, got {shorten(value)}")
        return value

    def check_keys(self, table: Mapping[str, Any], place: KeyPath, keys: Mapping[str, Any], what: str) -> None:
        """Raise BadInput for the first unknown key, with the nearest known one."""
        for key in table:
            if key not in keys:
                try:
                    lookup_or_suggest(key, keys, what)
                except BadInput as error:
                    raise self.text.error((*place, key), error) from None

    def check_required(self, values: Mapping[str, Any], place: KeyPath, kind: type[msgspec.Struct]) -> None:
        """Raise BadInput if a field without a default is missing."""
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in values:
                needed = ", ".join(one.name for one in msgspec.structs.fields(kind) if one.required)
                raise self.text.error(place, f"{field.name} is missing: required are {needed}")

    def value(self, value: object, place: KeyPath, hint: Any) -> Any:
        """Convert a value to this type; raise BadInput if that fails."""
        words = [word for word in _literals(hint) if isinstance(word, str)]
        if isinstance(value, str) and words and value not in words:
            try:
                lookup_or_suggest(value, dict.fromkeys(words), str(place[-1]))
            except BadInput as error:
                raise self.text.error(place, error) from None
        try:
            made = msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            numbers = [str(word) for word in _literals(hint) if isinstance(word, int)]
            problem = f"write {' or '.join(numbers)}" if numbers and not words else format_validation_error(error)
            if isinstance(value, str) and place[-1] in _TEXTS:
                problem = _TEXTS[str(place[-1])]
            raise self.text.error(place, f"{place[-1]} is {shorten(value)}: {problem}") from None
        if isinstance(made, float) and not math.isfinite(made):
            raise self.text.error(place, f"{place[-1]} is {made}: expected a finite number")
        return made


def shorten(value: object) -> str:
    """Format a value in at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _literals(hint: Any) -> tuple[Any, ...]:
    """Return the values of every Literal in a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(one for part in get_args(hint) if not isinstance(part, msgspec.Meta) for one in _literals(part))
