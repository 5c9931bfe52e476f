"""TOML with the line of every error, also of those that are found long after parsing."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from polybench.core.errors import BadInput
from polybench.data.disk import regular_bytes

_LARGEST_BYTES = 1 << 20
"""A study file of a hundred lines has 4 KB."""

Place = tuple[str, ...]
"""A key, with the tables that it is in: ("prices", "cpu")."""


class TomlText(NamedTuple):
    """The text of a TOML file; lines end with a bare line feed."""

    name: str
    content: str

    @classmethod
    def read(cls, path: Path) -> TomlText:
        """The file's text; raises BadInput if it cannot be read."""
        try:
            content = regular_bytes(path, _LARGEST_BYTES).decode("utf-8-sig")
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"cannot read {path}: byte {error.start} is not UTF-8, as TOML must be") from error
        return cls(str(path), content.replace("\r\n", "\n") + "\n")  # tomllib finds no line at a bare end

    def load(self) -> dict[str, Any]:
        """The tables; raises BadInput where it is no TOML."""
        try:
            return tomllib.loads(self.content)
        except (ValueError, RecursionError) as error:
            found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
            line = int(found[2]) if found else self._line_after(lambda _: True)
            what = f"{found[1]}, at column {found[3]}" if found else error
            raise BadInput(f"{self.name}:{line}: no TOML: {what}") from error

    def error(self, place: Place, problem: object) -> BadInput:
        """That there is a problem with what the text defines at `place`."""
        return BadInput(f"{self.name}:{self._line_after(lambda table: not _has(table, place))}: {problem}")

    def _line_after(self, good: Callable[[dict[str, Any]], bool]) -> int:
        """The line after the longest beginning of the file that is TOML by itself, and good.

        The next definition begins there: it may go on for several lines, but none of them ends a beginning
        that is TOML before the last one does.
        """
        lines = self.content.split("\n")
        for number in reversed(range(1, len(lines))):
            with contextlib.suppress(ValueError, RecursionError):
                if good(tomllib.loads("\n".join(lines[:number]))):
                    return number + 1
        return 1


def _has(table: object, place: Place) -> bool:
    for key in place:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True
