"""Statements of a forward pass in Python: nested calls where they fit into a line, otherwise one after the other."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple

from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Part, Stage
from polybench.networks.source_text import WIDTH, wrapped

_VARIABLES = ("x", "y", "z")
"""Values inside of nested residual blocks."""


class Expression(NamedTuple):
    """The output of a part of a network.

    Attributes:
        text: the expression.
        before: lines before it.
        is_call: False for a sum, which cannot be a part of another expression.
        needs_variable: True if the input must be a variable, such as one that is used twice.
    """

    text: str
    before: Sequence[str] = ()
    is_call: bool = True
    needs_variable: bool = False


Writer = Callable[[Part, str, bool], Expression]
"""The output of a part for an input, which is an expression; True if it may overwrite the input."""


class _Value(NamedTuple):
    """A value in a forward pass: an expression, whether it can be a part of others, and whether it has a product."""

    text: str
    is_call: bool = True
    has_product: bool = False


class Statements:
    """Writes a forward pass with `write`; a layer or sum after one of `overwritable` may overwrite its output."""

    def __init__(self, write: Writer, indent: str, overwritable: tuple[type, ...] = ()) -> None:
        self._write, self._indent, self._overwritable = write, indent, overwritable
        self._lines: list[str] = []

    def forward(self, layers: Sequence[Part], returned: str = "{}") -> list[str]:
        """Return the lines that compute layers of the variable `x` and return their output in place of `{}`."""
        self._lines = []
        value = self._chain(layers, "x", 0)
        lines = [*self._lines, f"return {returned.format(value.text)}"]
        return [part for line in lines for part in _broken(f"{self._indent}{line}")]

    def _chain(self, layers: Sequence[Part], x: str, depth: int) -> _Value:
        """Append the statements that compute the layers of the variable `x`, and return the value of the last."""
        target = _variable(depth)
        value, previous = _Value(x), None
        for layer in layers:
            if isinstance(layer, spec.Residual):
                value = self._assigned(value, target)
                if value.text not in (x, target):  # a deeper variable, which the branches change
                    self._lines.append(f"{target} = {value.text}")
                    value = _Value(target)
                value = self._residual(layer, value.text, depth)
            else:
                in_place = isinstance(previous, self._overwritable)
                written = self._write(layer, value.text, in_place)
                is_product = isinstance(layer, Block | Stage) or layer.has_product
                fits = len(f"{self._indent}{target} = {written.text}") <= WIDTH
                splits = written.needs_variable or not fits or (is_product and value.has_product)
                if not value.is_call or splits:
                    value = self._assigned(value, target)
                    written = self._write(layer, value.text, in_place)
                self._lines += written.before
                value = _Value(written.text, written.is_call, is_product or value.has_product)
            previous = layer
        return value

    def _residual(self, layer: spec.Residual, x: str, depth: int) -> _Value:
        """Append the statements of both branches, and return their sum."""
        target = _variable(depth + 1)
        is_in_place = bool(layer.body) and isinstance(layer.body[-1], self._overwritable)
        body = self._chain(layer.body, x, depth + 1)
        lines, self._lines = self._lines, []
        shortcut = self._chain(layer.shortcut, x, depth + 2)
        if not shortcut.is_call and not is_in_place:
            shortcut = self._assigned(shortcut, _variable(depth + 2))
        before, self._lines = self._lines, lines
        if before and body.text not in (x, target):  # they may change what the expression reads
            self._lines.append(f"{target} = {body.text}")
            body = _Value(target)
        self._lines += before
        if is_in_place:
            body = self._assigned(body, target)
            self._lines.append(f"{body.text} += {shortcut.text}")
            return _Value(body.text)
        if not body.is_call or len(f"{self._indent}x = {shortcut.text} + {body.text}") > WIDTH:
            body = self._assigned(body, target)
        return _Value(f"{shortcut.text} + {body.text}", is_call=False)

    def _assigned(self, value: _Value, target: str) -> _Value:
        """Append the assignment of an expression to a variable, unless it is one; return the variable."""
        if value.text.isidentifier():
            return _Value(value.text)
        self._lines.append(f"{target} = {value.text}")
        return _Value(target)


def _variable(depth: int) -> str:
    return _VARIABLES[depth] if depth < len(_VARIABLES) else f"{_VARIABLES[-1]}{depth}"


def _broken(line: str) -> list[str]:
    """Return the lines of a statement; a call that is too long has its arguments in lines of their own."""
    if len(line) <= WIDTH or line.endswith(":"):
        return [line]
    code = line.lstrip()
    (statement,) = ast.parse(code).body
    call = getattr(statement, "value", None)
    if not isinstance(call, ast.Call):
        return [line]
    start, *arguments = (ast.get_source_segment(code, one) or "" for one in (call.func, *call.args, *call.keywords))
    before = line.removesuffix(ast.get_source_segment(code, call) or "")
    return wrapped(f"{before}{start}(", arguments)
