"""Tables of a TOML file made into records, each value with the line that it is wrong at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from polybench.core.errors import BadInput, said
from polybench.core.names import pick
from polybench.planning.toml_text import Place, TomlText

T = TypeVar("T", bound=msgspec.Struct)

_TEXTS = {
    "name": "a name has letters, digits and . _ - only, a letter first, and few of them",
    "summary": "a summary is one line of at most 200 characters",
}
"""What a text should be, by its key."""


class Tables(NamedTuple):
    """The tables of one text."""

    text: TomlText

    def read(self, table: object, place: Place, kind: type[T], what: str) -> T:
        """The record of this table.

        Args:
            table: its values by the names of the record's fields.
            place: of the table.
            kind: of the record.
            what: a key is called in errors.

        Raises:
            BadInput: with the line of an unknown key, a value that is none of its field, or the table that
                lacks one.
        """
        keys = self.table(table, place)
        hints = get_type_hints(kind, include_extras=True)
        self.known(keys, place, hints, what)
        values = {key: self.value(value, (*place, key), hints[key]) for key, value in keys.items()}
        self.complete(values, place, kind)
        return kind(**values)

    def table(self, value: object, place: Place) -> Mapping[str, Any]:
        """The value, if it is a table; else BadInput."""
        if not isinstance(value, dict):
            raise self.text.error(
                place, f"a table belongs here, with keys and values, and not {shown(value)}"
            )
        return value

    def known(self, table: Mapping[str, Any], place: Place, keys: Mapping[str, Any], what: str) -> None:
        """Raise BadInput for the first key that is none of these; it has the nearest."""
        for key in table:
            if key not in keys:
                try:
                    pick(key, keys, what)
                except BadInput as error:
                    raise self.text.error((*place, key), error) from None

    def complete(self, values: Mapping[str, Any], place: Place, kind: type[msgspec.Struct]) -> None:
        """Raise BadInput where a field is missing that has no default."""
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in values:
                needed = ", ".join(one.name for one in msgspec.structs.fields(kind) if one.required)
                raise self.text.error(place, f"{field.name} is missing here; needed are: {needed}")

    def value(self, value: object, place: Place, hint: Any) -> Any:
        """The value as this type has it; else BadInput."""
        words = [word for word in _literals(hint) if isinstance(word, str)]
        if isinstance(value, str) and words and value not in words:
            try:
                pick(value, dict.fromkeys(words), str(place[-1]))
            except BadInput as error:
                raise self.text.error(place, error) from None
        try:
            made = msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            numbers = [str(word) for word in _literals(hint) if isinstance(word, int)]
            problem = f"write {' or '.join(numbers)}" if numbers and not words else said(error)
            if isinstance(value, str) and place[-1] in _TEXTS:
                problem = _TEXTS[str(place[-1])]
            raise self.text.error(place, f"{place[-1]} is {shown(value)}: {problem}") from None
        if isinstance(made, float) and not math.isfinite(made):
            raise self.text.error(place, f"{place[-1]} is {made}; write a finite number")
        return made


def shown(value: object) -> str:
    """A value of a file, as short as it can be told by."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _literals(hint: Any) -> tuple[Any, ...]:
    """The values of every Literal in a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(
        one for part in get_args(hint) if not isinstance(part, msgspec.Meta) for one in _literals(part)
    )
