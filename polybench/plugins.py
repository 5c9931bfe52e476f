"""Tables with rows of polybench, and rows that other packages declare as entry points.

The groups are `polybench.engines`, `polybench.models`, `polybench.metrics`, `polybench.formats` and
`polybench.figures`. A package is imported when one of its rows is used.
"""

from __future__ import annotations

import functools
import importlib
import traceback
import warnings
from collections import UserDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from polybench.errors import BadInput, lookup_or_suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

Row = TypeVar("Row")

_GROUPS: list[str] = []
"""The groups of all tables."""


class PluginWarning(UserWarning):
    """Warning about a row of another package that cannot be used."""


NO_REFERENCES: Mapping[str, str] = {}


class Registry(UserDict[str, Row]):
    """Polybench's own rows by name; `names`, `find` and `rows` include those of other packages."""

    def __init__(self, noun: str, row_type: type[Row], references: Mapping[str, str] = NO_REFERENCES) -> None:
        """Start a table; `references` are own rows as `module:attribute`, which are imported when they are used."""
        super().__init__()
        self.data: dict[str, Any] = dict(references)
        self.noun = noun
        self.row_type: Any = row_type
        self.group = f"polybench.{noun}s"
        _GROUPS.append(self.group)

    def __getitem__(self, name: str) -> Row:
        """Return one of polybench's own rows; raises KeyError for an unknown name."""
        if isinstance(reference := self.data[name], str):
            module, _, attribute = reference.partition(":")
            self.data[name] = getattr(importlib.import_module(module), attribute)
        row: Row = self.data[name]
        return row

    def names(self) -> dict[str, None]:
        """Return all names, polybench's own first, without importing another package."""
        return dict.fromkeys((*self, *(point.name for point in _entry_points(self.group))))

    def find(self, name: str) -> Row:
        """Return a row; BadInput if it is unknown, two packages declare it, or its package is broken."""
        points = [point for point in _entry_points(self.group) if point.name == name]
        owners = [*(["polybench"] if name in self else []), *sorted(map(_package_name, points))]
        if len(owners) > 1:
            raise BadInput(
                f"{self.noun} {name!r} is declared by {' and '.join(owners)}: expected one package:"
                f" uninstall {' or '.join(owners[1:])}, or rename its entry point of {self.group}"
            )
        lookup_or_suggest(name, self.names(), self.noun)
        row: Row = _load(points[0], self.noun, self.row_type) if points else self[name]
        return row

    def load_all(self) -> tuple[dict[str, Row], dict[str, str]]:
        """Return all usable rows, and by name the errors of the others."""
        rows, errors = {}, {}
        for name in self.names():
            try:
                rows[name] = self.find(name)
            except BadInput as error:
                errors[name] = str(error)
        return rows, errors

    def rows(self) -> dict[str, Row]:
        """Return all usable rows, and warn about the others."""
        rows, errors = self.load_all()
        for error in errors.values():
            warnings.warn(error, PluginWarning, stacklevel=2)
        return rows


def blame(error: BaseException) -> str | None:
    """Return a message if another package's code raised the error; None if no plugin was involved."""
    points = (point for group in _GROUPS for point in _entry_points(group))
    packages = {point.module.partition(".")[0]: _package_name(point) for point in points}
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module in packages and module != "polybench":
            place = f"{frame.f_code.co_filename}, line {line}"
            return f"{packages[module]} failed: {_one_line(error)} ({place}): repair or uninstall the package"
    return None


@functools.cache
def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # late: a third of what a worker imports before NumPy

    return entry_points(group=group)


@functools.cache
def _load(point: EntryPoint, noun: str, row_type: Any) -> Any:
    source = f"{noun} {point.name!r} of {_package_name(point)} (entry point {point.value})"
    try:
        row = point.load()
    except Exception as error:  # a plugin's module may raise anything
        raise BadInput(f"{source} cannot be loaded: {_one_line(error)}") from error
    if not isinstance(row, row_type):
        raise BadInput(f"{source} is not a {row_type.__module__}.{row_type.__qualname__}: {row!r}")
    if getattr(row, "name", point.name) != point.name:
        raise BadInput(f"{source} has the name {row.name!r}: expected the name of its entry point")
    return row


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _package_name(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unnamed package"
