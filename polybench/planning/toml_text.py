"""TOML text that can report the line of an error, even long after parsing."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polybench.data.disk import read_regular_file
from polybench.errors import BadInput

_LARGEST_BYTES = 1 << 20
"""Maximum size; a study file of a hundred lines has 4 KB."""

KeyPath = tuple[str | int, ...]
"""A key with its tables and array indices: ("prices", "cpu"), ("layers", 3, "kernel")."""

_ENDS = ("", *("\n]}" * depth + "\n]" for depth in range(17)))
"""Endings that can complete a prefix of a TOML file that stops inside nested arrays and tables."""


_WORK = 4 << 20
"""Maximum characters to parse per bisection step; beyond that, the reported line may be too early."""


class TomlText(NamedTuple):
    """The text of a TOML file, with line feeds only."""

    name: str
    content: str

    @classmethod
    def read(cls, path: Path) -> TomlText:
        """Read a file; raise BadInput if that fails."""
        try:
            content = read_regular_file(path, _LARGEST_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadInput(f"cannot read {path}: byte {error.start} is not UTF-8, which TOML requires") from error
        except (OSError, ValueError) as error:  # ValueError: an invalid file name
            raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        return cls(
            str(path), content.replace("\r\n", "\n") + "\n"
        )  # tomllib reports no line at the end of a file without it

    def load(self) -> dict[str, Any]:
        """Parse the tables; raise BadInput if the text is not TOML."""
        try:
            return tomllib.loads(self.content)
        except (ValueError, RecursionError) as error:
            found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
            line = int(found[2]) if found else self._line_after(lambda _: True, ends=("",))
            what = f"{found[1]}, at column {found[3]}" if found else error
            raise BadInput(f"{self.name}:{line}: not valid TOML: {what}") from error

    def error(self, place: KeyPath, problem: object) -> BadInput:
        """Return an error with the line that defines this key path."""
        return BadInput(f"{self.name}:{self.line(place)}: {problem}")

    def line(self, place: KeyPath) -> int:
        """Return the line that defines this key path, or its nearest parent."""
        table = self.load()
        while place and not _has(table, place):
            place = place[:-1]
        return self._line_after(lambda table: not _has(table, place), _ENDS) if place else 1

    def _line_after(self, good: Callable[[dict[str, Any]], bool], ends: Sequence[str]) -> int:
        """Return the line after the longest prefix of the file that is valid TOML, with an ending, and
        `good`.

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
