"""TOML text that can report the line of an error, even long after parsing, and its tables as structs."""

from __future__ import annotations

import contextlib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from polybench.errors import BadInput, format_validation_error, lookup_or_suggest

T = TypeVar("T", bound=msgspec.Struct)

KeyPath = tuple[str | int, ...]
"""A key with its tables and array indices: ("prices", "cpu"), ("layers", 3, "kernel")."""

_EXPECTED: dict[tuple[str, type], str] = {
    ("name", str): "expected a short name of letters, digits and . _ - that starts with a letter",
    ("summary", str): "expected one line of at most 200 characters",
    ("padding", list): "expected a number of pixels, or [[top, bottom], [left, right]]",
}
"""Expected form of a value, by key and the type of the given one."""

_EXAMPLE = "{ height = 32, width = 32 }"

_ENDS = ("", *("\n]}" * depth + "\n]" for depth in range(17)))
"""Endings that can complete a prefix of a TOML file that stops inside nested arrays and tables."""

_WORK = 4 << 20
"""Maximum characters to parse per bisection step; beyond that, the reported line may be too early."""


class TomlText(NamedTuple):
    """The text of a TOML file, with line feeds only."""

    name: str
    content: str

    def load(self) -> dict[str, Any]:
        """Parse the tables; raise BadInput if the text is not TOML."""
        try:
            return tomllib.loads(self.content)
        except (ValueError, RecursionError) as error:
            found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
            line = int(found[2]) if found else self._line_after(lambda _: True, ends=("",))
            what = f"{found[1]}, at column {found[3]}" if found else str(error)
            if found and self._breaks_inline_table(found[1], line, int(found[3])):
                what = f"an inline table must be on one line, without a last comma: write {_EXAMPLE}, or a [table]"
            raise BadInput(f"{self.name}:{line}: not valid TOML: {what}") from error

    def _breaks_inline_table(self, problem: str, line: int, column: int) -> bool:
        """Return True if tomllib's problem is the end of a line, or a last comma, in an inline table."""
        text = self.content.split("\n")[line - 1]
        before, after = text[: column - 1].rstrip(), text[column - 1 : column]
        if problem == "Unclosed inline table":
            return after in ("", "#")
        return problem.startswith("Invalid initial character") and before[-1:] in ("{", ",") and after in ("", "#", "}")

    def error(self, place: KeyPath, problem: object) -> BadInput:
        """Return an error with the line that defines this key path."""
        return BadInput(f"{self.name}:{self.line(place)}: {problem}")

    @contextlib.contextmanager
    def errors_at(self, place: KeyPath) -> Iterator[None]:
        """Add the line that defines this key path to a BadInput of this context."""
        try:
            yield
        except BadInput as error:
            raise self.error(place, error) from None

    def line(self, place: KeyPath) -> int:
        """Return the line that defines this key path, or its nearest parent."""
        table = self.load()
        while place and not _has(table, place):
            place = place[:-1]
        return self._line_after(lambda table: not _has(table, place), _ENDS) if place else 1

    def read_struct(self, table: object, place: KeyPath, kind: type[T], what: str) -> T:
        """Convert the table at this key path to a struct; `what` is the word for a key in errors.

        BadInput has the line of an unknown key, an invalid value, or a table without a required key.
        """
        keys = self.expect_table(table, place)
        hints = get_type_hints(kind, include_extras=True)
        self.check_keys(keys, place, hints, what)
        values = {key: self.read_value(value, (*place, key), hints[key]) for key, value in keys.items()}
        self.check_required(values, place, kind)
        return kind(**values)

    def expect_table(self, value: object, place: KeyPath) -> Mapping[str, Any]:
        """Return the value if it is a table; otherwise raise BadInput."""
        if not isinstance(value, dict):
            raise self.error(place, f"expected a table with keys and values, got {shorten(value)}")
        return value

    def check_keys(self, given: Iterable[str], place: KeyPath, keys: Iterable[str], what: str) -> None:
        """Raise BadInput for the first unknown key, with the nearest known one."""
        known = dict.fromkeys(keys)
        for key in given:
            with self.errors_at((*place, key)):
                lookup_or_suggest(key, known, what)

    def check_required(self, values: Mapping[str, Any], place: KeyPath, kind: type[msgspec.Struct]) -> None:
        """Raise BadInput if a field without a default is missing."""
        required = [field.name for field in msgspec.structs.fields(kind) if field.required]
        for name in required:
            if name not in values:
                raise self.error(place, f"{name} is missing: required are {', '.join(required)}")

    def read_value(self, value: object, place: KeyPath, hint: Any) -> Any:
        """Convert a value to this type; raise BadInput if that fails."""
        key = str(place[-1])
        words = [word for word in _literals(hint) if isinstance(word, str)]
        if isinstance(value, str) and words:
            with self.errors_at(place):
                lookup_or_suggest(value, dict.fromkeys(words), key)
        try:
            made = msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            numbers = [str(word) for word in _literals(hint) if isinstance(word, int)]
            problem = f"write {' or '.join(numbers)}" if numbers and not words else format_validation_error(error)
            problem = _EXPECTED.get((key, type(value)), problem)
            raise self.error(place, f"{key} is {shorten(value)}: {problem}") from None
        if isinstance(made, float) and not math.isfinite(made):
            raise self.error(place, f"{key} is {made}: expected a finite number")
        return made

    def _line_after(self, good: Callable[[dict[str, Any]], bool], ends: Sequence[str]) -> int:
        """Return the line after the longest prefix of the file that is valid TOML, with an ending, and `good`.

        The next definition starts there. It may span several lines, but no prefix within it is valid TOML.
        A longer valid prefix is not `good` either.
        """
        lines = self.content.split("\n")
        found, low, high = 0, 0, len(lines)
        while low + 1 < high:
            middle = (low + high) // 2
            number, table = _longest(lines, low, middle, ends)
            if table is not None and not good(table):
                high = number
            else:
                found, low = number if table is not None else found, middle
        return found + 1


def shorten(value: object) -> str:
    """Format a value in at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _literals(hint: Any) -> tuple[Any, ...]:
    """Return the values of every Literal in a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(one for part in get_args(hint) if not isinstance(part, msgspec.Meta) for one in _literals(part))


def _longest(lines: Sequence[str], low: int, high: int, ends: Sequence[str]) -> tuple[int, dict[str, Any] | None]:
    """Return the largest prefix in (low, high] lines that is valid TOML with an ending, and its tables."""
    size = sum(len(line) + 1 for line in lines[:high])
    most = max(1, _WORK // (len(ends) * max(1, size)))
    for number in range(high, max(low, high - most), -1):
        for end in ends:
            with contextlib.suppress(ValueError, RecursionError):
                return number, tomllib.loads("\n".join(lines[:number]) + end)
    return low, None


def _has(table: Any, place: KeyPath) -> bool:
    for key in place:
        keys = range(len(table)) if isinstance(table, list) else table if isinstance(table, dict) else ()
        if key not in keys:
            return False
        table = table[key]
    return True
