"""Writes Julia as its formatter Runic does: calls in one line, otherwise with arguments in lines of their own."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from polybench.networks.source_text import comment

WIDTH = 92
"""Characters of a line in Julia."""
_INDENT = "    "


class Call(NamedTuple):
    """A call with arguments, and keyword arguments after a semicolon."""

    function: str
    arguments: Sequence[Expression]
    options: Sequence[str] = ()

    def __str__(self) -> str:
        options = f"; {', '.join(self.options)}" if self.options else ""
        return f"{self.function}({', '.join(map(str, self.arguments))}{options})"


Expression: TypeAlias = str | Call


def lines(start: str, expression: Expression, end: str = "") -> list[str]:
    """Return the lines of an expression between `start`, which has the indentation, and `end`.

    A call that does not fit into a line has an argument in each, or all of them if they fit.
    """
    line = f"{start}{expression}{end}"
    if isinstance(expression, str) or len(line) <= WIDTH or not expression.arguments:
        return [line]
    indent = start[: len(start) - len(start.lstrip())]
    inner = f"{indent}{_INDENT}"
    options = ", ".join(expression.options)
    together = f"{inner}{', '.join(map(str, expression.arguments))}{f'; {options}' if options else ''},"
    if len(together) <= WIDTH and all(isinstance(one, str) for one in expression.arguments):
        body = [together]
    else:
        *others, last = expression.arguments
        body = [line for one in others for line in lines(inner, one, ",")]
        body += lines(inner, last, ";" if options else ",")
        body += [f"{inner}{options},"] if options else []
    return [f"{start}{expression.function}(", *body, f"{indent}){end}"]


def text(start: str, expression: Expression, end: str = "") -> str:
    """Return `lines` as one text."""
    return "\n".join(lines(start, expression, end))


def vector(start: str, items: Sequence[str]) -> list[str]:
    """Return the lines of a vector after `start`, which has the indentation."""
    line = f"{start}[{', '.join(items)}]"
    if len(line) <= WIDTH:
        return [line]
    indent = start[: len(start) - len(start.lstrip())]
    return [f"{start}[", *(f"{indent}{_INDENT}{item}," for item in items), f"{indent}]"]


def comments(sentence: str) -> list[str]:
    """Return the lines of a comment."""
    words = comment(sentence).removeprefix("# ")
    return [f"# {line}" for line in textwrap.wrap(words, WIDTH - 2, break_long_words=False, break_on_hyphens=False)]


def number(value: float) -> str:
    """Return the literal of a number, as Julia prints it: `1.0e-5`."""
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{int(exponent)}"
