"""GPU functions of a framework that an engine's sources call, so that tests can check that all of them ran."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ENGINES = Path(__file__).parents[2] / "polybench" / "engines"


def find_calls(patterns: Iterable[str], *beginnings: str) -> set[str]:
    """Find dotted names with these prefixes in the files of the patterns: `torch.cuda.synchronize`."""
    files = (file for pattern in patterns for file in ENGINES.glob(pattern))
    return {name for file in files for name in find_calls_in(file.read_text("utf-8"), *beginnings)}


def find_calls_in(text: str, *beginnings: str) -> set[str]:
    """Find them in a program."""
    return {name for name in _dotted(ast.parse(text)) if name.startswith(beginnings)}


def _dotted(tree: ast.AST) -> Iterator[str]:
    """Yield the complete dotted name of each attribute chain."""
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
