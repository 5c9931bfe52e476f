"""Texts that enter a document or reach a terminal: with control characters escaped."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable
from typing import Any

import msgspec

_CONTROLS = [
    *range(9), *range(11, 32), *range(127, 160), 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
    *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), 0xE0001, *range(0xE0020, 0xE0080),
]  # fmt: skip
_ESCAPES = {code: f"\\x{code:02x}" if code < 32 else json.dumps(chr(code)).strip('"') for code in _CONTROLS} | {
    127: "\\u007f"
}
"""Escapes of every control character but line feed and tab, and of characters that are invisible or change the
text's direction.

JSON text stays valid: its encoder has already escaped the ASCII ones, and JSON reads the others' escapes as
the same characters.
"""


def printable(text: str) -> str:
    """Escape control characters as in a string literal: ESC becomes `\\x1b`."""
    return _cached(text) if len(text) < _MAX_CACHED else _printable(text)


def _printable(text: str) -> str:
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


_MAX_CACHED = 256
"""Characters of a text; a document repeats most short texts in every row."""
_cached = functools.lru_cache(4096)(_printable)


_WITHOUT_TEXT = frozenset((float, int, bool, type(None)))


def map_texts(value: Any, function: Callable[[str], str]) -> Any:
    """Return the value with the function applied to every text in it; unchanged parts remain the same objects."""
    if isinstance(value, str):
        changed = function(value)
        return value if changed == value else changed
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        new_fields = map_texts(fields, function)
        return value if new_fields is fields else msgspec.structs.replace(value, **new_fields)
    if isinstance(value, dict):
        pairs = list(value.items())
        new_pairs = map_texts(pairs, function)
        return value if new_pairs is pairs else dict(new_pairs)
    if not isinstance(value, list | tuple) or {*map(type, value)} <= _WITHOUT_TEXT:
        return value
    items = [map_texts(item, function) for item in value]
    if all(map(operator.is_, items, value)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


class PrintableStruct(msgspec.Struct):
    """A record whose texts are printable, wherever they came from."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, map_texts(getattr(self, name), printable))
