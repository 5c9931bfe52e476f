"""Engines of other packages, which declare them as entry points of the group `polybench.engines`.

An entry point has the engine's name and `module:ROW`, an `EngineRow`. They are looked for where a study is
planned, not when polybench is imported, and only the one that is asked for is loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.engines import ENGINES, EngineRow

GROUP = "polybench.engines"


def engine_names() -> tuple[str, ...]:
    """Every engine that may be asked for, polybench's own first; nothing of others is imported."""
    return tuple(dict.fromkeys((*ENGINES, *_declared())))


def find_engine(name: str) -> EngineRow:
    """The row of an engine: polybench's own, or an entry point's.

    Raises:
        BadInput: there is no such engine, two packages have one of this name, or it cannot be imported.
    """
    found = _declared().get(name, ())
    owners = [*(["polybench"] if name in ENGINES else []), *sorted(map(_package, found))]
    if len(owners) > 1:
        raise BadInput(
            f"engine {name!r} is declared by {' and '.join(owners)}; a name belongs to one of them:"
            f" uninstall {' or '.join(owners[1:])}, or rename its entry point of {GROUP}"
        )
    pick(name, dict.fromkeys(engine_names()), "engine")
    return _loaded(found[0]) if found else ENGINES[name]


def all_engines() -> tuple[dict[str, EngineRow], dict[str, str]]:
    """Every engine's row, and by name what is wrong with those that cannot be loaded."""
    rows, broken = {}, {}
    for name in engine_names():
        try:
            rows[name] = find_engine(name)
        except BadInput as error:
            broken[name] = str(error)
    return rows, broken


@functools.cache
def _declared() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Name -> the entry points that have it: one, unless packages clash."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


@functools.cache
def _loaded(point: EntryPoint) -> EngineRow:
    where = f"engine {point.name!r} of {_package(point)} (entry point {point.value})"
    try:
        row = point.load()
    except Exception as error:  # whatever somebody else's module raises
        raise BadInput(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(row, EngineRow):
        raise BadInput(f"{where} is no polybench.engines.EngineRow: {row!r}")
    return row


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "a package without a name"
