"""Text of a user's file in generated programs: as literals, as comments and as attributes, never as code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

WIDTH = 88
"""Characters of a line in Python, as in ruff and Black."""


def escape(text: str) -> str:
    """Return the text as it stands between double quotes, one or three, in Python and in Julia.

    Both languages have these escapes. In Julia, `$` would begin an expression.
    """
    special = {'"': '\\"', "\\": "\\\\", "$": r"\u0024"}
    return "".join(special.get(char) or _printable(char) for char in text)


def escape_in_braces(text: str) -> str:
    """Return the text as it stands in an f-string of Python."""
    return escape(text).replace("{", "{{").replace("}", "}}")


def literal(text: str) -> str:
    """Return the literal of a text in Python and in Julia."""
    return f'"{escape(text)}"'


def comment(text: str) -> str:
    """Return a comment of one line in Python, Julia and shell."""
    return f"# {''.join(map(_printable, text))}"


def docstring(summary: str) -> list[str]:
    """Return the lines of the docstring of a class or function in Python that says this; none without a summary."""
    sentence = f'"""{escape(f"{summary[:1].upper()}{summary[1:]}.")}"""'
    filled = textwrap.fill(sentence, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent(filled, "    ").splitlines() if summary else []


def attributes(names: Iterable[str], is_reserved: Callable[[str], bool] = lambda _: False) -> dict[str, str]:
    """Return an attribute for each name of a layer: other characters than letters and digits become underscores.

    One that is reserved, or that another layer has, gets an underscore at its end.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        attribute = re.sub(r"\W", "_", name, flags=re.ASCII)
        attribute = attribute if attribute[:1].isalpha() else f"layer_{attribute}"
        while attribute in taken or is_reserved(attribute):
            attribute += "_"
        taken.add(attribute)
        found[name] = attribute
    return found


def _printable(char: str) -> str:
    """Return the character, or the escape of one that would end a line or be invisible."""
    return char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"


def wrapped(start: str, arguments: Sequence[str], end: str = ")", *, width: int = WIDTH) -> list[str]:
    """Return the lines of a call in Python, as ruff and Black break them; `start` has the indentation.

    In one line if it fits, otherwise the arguments in a line of their own, otherwise one argument a line.
    """
    line = f"{start}{', '.join(arguments)}{end}"
    indent = line[: len(line) - len(line.lstrip())]
    if len(line) <= width or not arguments:
        return [line]
    inner = f"{indent}    {', '.join(arguments)}"
    if len(inner) <= width:
        return [start, inner, f"{indent}{end}"]
    return [start, *(f"{indent}    {argument}," for argument in arguments), f"{indent}{end}"]
