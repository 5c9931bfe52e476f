"""Engines of other packages, declared as entry points of the group `polybench.engines`.

An entry point maps the engine's name to `module:NAME`, an `EngineSpec`. polybench reads the entry points when
it plans a study, not on import, and loads only the requested engines.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from polybench.engines import ENGINES, EngineSpec
from polybench.errors import BadInput, lookup_or_suggest

GROUP = "polybench.engines"


def engine_names() -> tuple[str, ...]:
    """Names of all engines, polybench's own first, without importing any plugin."""
    return tuple(dict.fromkeys((*ENGINES, *_entry_points())))


def find_engine(name: str) -> EngineSpec:
    """Return the spec of a built-in engine or of a plugin.

    Raises:
        BadInput: the engine is unknown, two packages declare it, or its plugin cannot be imported.
    """
    plugins = _entry_points().get(name, ())
    owners = [*(["polybench"] if name in ENGINES else []), *sorted(map(_package_name, plugins))]
    if len(owners) > 1:
        raise BadInput(
            f"engine {name!r} is declared by {' and '.join(owners)}: expected one package:"
            f" uninstall {' or '.join(owners[1:])}, or rename its entry point of {GROUP}"
        )
    lookup_or_suggest(name, dict.fromkeys(engine_names()), "engine")
    return _load(plugins[0]) if plugins else ENGINES[name]


def load_all_engines() -> tuple[dict[str, EngineSpec], dict[str, str]]:
    """Return the specs of all engines by name, and the errors of those that cannot be loaded."""
    specs, errors = {}, {}
    for name in engine_names():
        try:
            specs[name] = find_engine(name)
        except BadInput as error:
            errors[name] = str(error)
    return specs, errors


@functools.cache
def _entry_points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Entry points by engine name; more than one if packages conflict."""
    by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        by_name[point.name] = (*by_name.get(point.name, ()), point)
    return by_name


@functools.cache
def _load(point: EntryPoint) -> EngineSpec:
    source = f"engine {point.name!r} of {_package_name(point)} (entry point {point.value})"
    try:
        spec = point.load()
    except Exception as error:  # a plugin's module may raise anything
        raise BadInput(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(spec, EngineSpec):
        raise BadInput(f"{source} is not a polybench.engines.EngineSpec: {spec!r}")
    return spec


def _package_name(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unnamed package"
