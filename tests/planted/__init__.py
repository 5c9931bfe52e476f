"""Bugs of the kind that a refactoring makes, planted one at a time, and the tests that must fail for each.

The files `*.toml` beside this one list them by area. `python -m tests.planted` (`make planted`) plants each in a
copy of the repository and runs the test file that must notice it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replacement of text; `old` occurs exactly once in `file`."""

    kind: str
    """The mistake in a few words, unique in its area."""
    file: str
    old: str
    new: str
    killed_by: str
    """The test file that must fail."""

    def planted(self, text: str) -> str:
        """Return the file's text with the bug; raise ValueError if it no longer applies."""
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.kind}: expected its old text once in {self.file}, found {found} times")
        return text.replace(self.old, self.new)


class _Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bug: list[Bug]


def areas() -> list[str]:
    """Return the names of the lists."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def bugs(area: str) -> list[Bug]:
    """Return the bugs of an area."""
    table = tomllib.loads((FOLDER / f"{area}.toml").read_text("utf-8"))
    return msgspec.convert(table, _Area).bug
