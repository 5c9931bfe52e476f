"""How large the house is: rooms, floors, files. A room is a folder or a module of `polybench/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import grimp

PACKAGE = Path(__file__).parents[1] / "polybench"
Arrows = frozenset[tuple[str, str]]


@cache
def arrows() -> Arrows:
    """(room, room that it imports); the package itself, `""`, is one too."""
    graph = grimp.build_graph("polybench", cache_dir=None)

    def room(module: str) -> str:
        return module.split(".")[1] if "." in module else ""

    found = {
        (room(importer), room(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return frozenset((above, below) for above, below in found if above != below)


@cache
def floor(room: str) -> int:
    """1 for a room that imports no other; raises RecursionError where imports go round."""
    return 1 + max((floor(below) for above, below in arrows() if above == room), default=0)


def rooms() -> set[str]:
    return {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }


def test_there_are_few_rooms() -> None:
    assert len(rooms()) <= 25


def test_there_are_few_floors_and_no_stairs_go_round() -> None:
    # The one arrow back: `polybench.compare` is found, late, in the api.
    assert {below for above, below in arrows() if above == ""} == {"api", "core"}
    assert max(floor(room) for room in rooms() - {"__init__"}) <= 10


def test_the_arrows_are_those_of_the_imports() -> None:
    assert ("cli", "commands") in arrows()
    assert ("core", "cli") not in arrows()
    assert floor("core") == 1 < floor("models") < floor("measuring") < floor("cli")


def test_files_are_short() -> None:
    lines = {path.relative_to(PACKAGE): path.read_text().count("\n") for path in PACKAGE.rglob("*.py")}
    assert {str(path): number for path, number in lines.items() if number > 300} == {}
