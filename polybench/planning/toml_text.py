"""TOML with the line of every error, also of those that are found long after parsing."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polybench.core.errors import BadInput
from polybench.data.disk import regular_bytes

_LARGEST_BYTES = 1 << 20
"""A study file of a hundred lines has 4 KB."""

Place = tuple[str | int, ...]
"""A key, with the tables and numbers in arrays that it is in: ("prices", "cpu"), ("layers", 3, "kernel")."""

_ENDS = ("", *("\n]}" * depth + "\n]" for depth in range(17)))
"""What may make TOML of a beginning that ends between the elements of an array: the ends of the arrays, and
of the tables that these are in."""


_WORK = 4 << 20
"""Characters that are parsed at most for each halving of the lines; then an earlier line is said."""


class TomlText(NamedTuple):
    """The text of a TOML file; lines end with a bare line feed."""

    name: str
    content: str

    @classmethod
    def read(cls, path: Path) -> TomlText:
        """The file's text; raises BadInput if it cannot be read."""
        try:
            content = regular_bytes(path, _LARGEST_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadInput(f"cannot read {path}: byte {error.start} is not UTF-8, as TOML must be") from error
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        return cls(str(path), content.replace("\r\n", "\n") + "\n")  # tomllib finds no line at a bare end

    def load(self) -> dict[str, Any]:
        """The tables; raises BadInput where it is no TOML."""
        try:
            return tomllib.loads(self.content)
        except (ValueError, RecursionError) as error:
            found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
            line = int(found[2]) if found else self._line_after(lambda _: True, ends=("",))
            what = f"{found[1]}, at column {found[3]}" if found else error
            raise BadInput(f"{self.name}:{line}: no TOML: {what}") from error

    def error(self, place: Place, problem: object) -> BadInput:
        """That there is a problem with what the text defines at `place`."""
        return BadInput(f"{self.name}:{self.line(place)}: {problem}")

    def line(self, place: Place) -> int:
        """The line in which the text defines what is at `place`, or else what is above."""
        table = self.load()
        while place and not _has(table, place):
            place = place[:-1]
        return self._line_after(lambda table: not _has(table, place), _ENDS) if place else 1

    def _line_after(self, good: Callable[[dict[str, Any]], bool], ends: Sequence[str]) -> int:
        """The line after the longest beginning of the file that is TOML, with one of these ends, and good.

        The next definition begins there: it may go on for several lines, but none of them ends a beginning
        that is TOML before the last one does. A longer beginning that is TOML is not good either.
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


def _longest(
    lines: Sequence[str], low: int, high: int, ends: Sequence[str]
) -> tuple[int, dict[str, Any] | None]:
    """How many lines, more than `low` and at most `high`, are TOML with an end, and what they say."""
    size = sum(len(line) + 1 for line in lines[:high])
    most = max(1, _WORK // (len(ends) * max(1, size)))
    for number in range(high, max(low, high - most), -1):
        for end in ends:
            with contextlib.suppress(ValueError, RecursionError):
                return number, tomllib.loads("\n".join(lines[:number]) + end)
    return low, None


def _has(table: Any, place: Place) -> bool:
    for key in place:
        keys = range(len(table)) if isinstance(table, list) else table if isinstance(table, dict) else ()
        if key not in keys:
            return False
        table = table[key]
    return True
