"""Lists the third-party modules that polybench imports and does not require, and the packages that import them.

It reads the sources, including late imports, so that no list has to be maintained.
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
PLAIN = "polybench.scripts"
"""Scripts for users, which polybench never imports."""


@functools.cache
def packages_of_frameworks() -> dict[str, set[str]]:
    """Return the packages that import each framework: `engines.torch`, or `api`."""
    graph = grimp.build_graph("polybench", include_external_packages=True)
    own = required_modules() | set(sys.stdlib_module_names)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - graph.find_descendants("polybench") - {"polybench"} - own:
        for importer in graph.find_modules_that_directly_import(module):
            if not importer.startswith(PLAIN):
                found[module].add(_package_of(importer))
    return {module: packages for module, packages in found.items() if packages}


def frameworks_of_engines() -> set[str]:
    """Return the frameworks that engine folders import."""
    frameworks = packages_of_frameworks().items()
    return {module for module, packages in frameworks if any(name.startswith("engines.") for name in packages)}


def required_modules() -> set[str]:
    """Return the top-level modules of polybench's required distributions."""
    required = {_normal(requirement) for requirement in PYPROJECT["project"]["dependencies"]}
    owners = importlib.metadata.packages_distributions().items()
    return {module for module, names in owners if required & set(map(_normal, names))}


def _normal(requirement: str) -> str:
    """Return the distribution of a requirement: `tomli-w` for `tomli-w>=1.0`."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def _package_of(module: str) -> str:
    """Return the package of a module: `engines.torch` for `polybench.engines.torch.layers`, `api` for
    `polybench.api`."""
    _, room, *inner = module.split(".")
    return f"{room}.{inner[0]}" if room == "engines" and inner else room
