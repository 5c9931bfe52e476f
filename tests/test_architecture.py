"""The structure of `polybench/`: packages and the layers that their imports form."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import grimp

PACKAGE = Path(__file__).parents[1] / "polybench"
Imports = frozenset[tuple[str, str]]


@cache
def imports() -> Imports:
    """Pairs of (importing, imported) packages or modules directly below `polybench`; `""` is `polybench` itself."""
    graph = grimp.build_graph("polybench", cache_dir=None)

    def package(module: str) -> str:
        return module.split(".")[1] if "." in module else ""

    found = {
        (package(importer), package(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return frozenset((importer, imported) for importer, imported in found if importer != imported)


@cache
def layer(package: str) -> int:
    """Return 1 for a package without imports of others; raise RecursionError for circular imports."""
    return 1 + max((layer(imported) for importer, imported in imports() if importer == package), default=0)


def packages() -> set[str]:
    return {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def test_there_are_few_packages() -> None:
    assert len(packages()) <= 30  # with errors.py, log.py, run.py, plugins.py, __init__.py and __main__.py


def test_there_are_few_layers_and_no_circular_imports() -> None:
    # The only upward import is in `polybench.compare`, which imports the api when it is called.
    assert {imported for importer, imported in imports() if importer == ""} == {"api", "errors"}
    assert max(layer(package) for package in packages() - {"__init__", "__main__"}) <= 14


def test_imports_are_found_and_counted_in_layers() -> None:
    assert ("cli", "api") in imports()
    assert ("errors", "cli") not in imports()
    assert layer("errors") == 1 < layer("networks") < layer("runner") < layer("cli")
