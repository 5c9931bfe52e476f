"""Texts of documents on their way to a terminal or a page. Documents themselves contain any text."""

from __future__ import annotations

import json

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
    """Escape control characters as in a string literal: ESC becomes `\\x1b`. Twice is the same as once."""
    if text.isascii() and text.isprintable():  # nearly all texts
        return text
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()
