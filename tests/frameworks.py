"""Which modules polybench imports that are no part of Python and none of its own requirements, and where.

Read from the sources, late imports included, so that no list of frameworks has to be kept.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import grimp

PYPROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
PLAIN = "polybench.plain"
"""Scripts for readers; polybench never imports them."""


@functools.cache
def rooms_of_frameworks() -> dict[str, set[str]]:
    """Framework, as it is imported -> the rooms that import it: `engines.pytorch`, or `api`."""
    graph = grimp.build_graph("polybench", include_external_packages=True)
    own = required_modules() | set(sys.stdlib_module_names)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - graph.find_descendants("polybench") - {"polybench"} - own:
        for importer in graph.find_modules_that_directly_import(module):
            if not importer.startswith(PLAIN):
                found[module].add(_room(importer))
    return {module: rooms for module, rooms in found.items() if rooms}


def frameworks_of_engines() -> set[str]:
    """Those that an engine's folder imports."""
    rooms = rooms_of_frameworks().items()
    return {module for module, where in rooms if any(room.startswith("engines.") for room in where)}


def required_modules() -> set[str]:
    """The top-level modules of what polybench requires without an extra."""
    required = {_normal(requirement) for requirement in PYPROJECT["project"]["dependencies"]}
    owners = importlib.metadata.packages_distributions().items()
    return {module for module, names in owners if required & set(map(_normal, names))}


def _normal(requirement: str) -> str:
    """`tomli-w` of `tomli_w>=1.0`."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def _room(module: str) -> str:
    """The room of `polybench.engines.pytorch.layers` is `engines.pytorch`; of `polybench.api`, `api`."""
    _, room, *inner = module.split(".")
    return f"{room}.{inner[0]}" if room == "engines" and inner else room
