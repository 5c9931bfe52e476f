"""What an engine's sources ask of a framework for its GPU, so that tests can say that all of it ran."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ENGINES = Path(__file__).parents[2] / "polybench" / "engines"


def calls(folders: Iterable[str], *beginnings: str) -> set[str]:
    """Dotted names in the files of these folders that begin so: `torch.cuda.synchronize`."""
    files = (file for folder in folders for file in (ENGINES / folder).glob("*.py"))
    return {
        name
        for file in files
        for name in _dotted(ast.parse(file.read_text("utf-8")))
        if name.startswith(beginnings)
    }


def _dotted(tree: ast.AST) -> Iterator[str]:
    """The longest of each chain of attributes."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner and (name := _name(node)):
            yield name


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _name(node.value)):
        return f"{before}.{node.attr}"
    return ""
